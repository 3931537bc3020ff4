"""A compiled model that is usable at once: eager torch runs it until an engine is chosen and built."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchport.compiler.compiled_model import TRAINING, CompiledModel
from torchport.compiler.specialise import Specialised, Specialiser
from torchport.records import Fallbacks, ProgramRecord, Tries
from torchport.runtime.input_kind import refuse_gradients
from torchport.structure import flatten_call

_log = logging.getLogger(__name__)


class ServedModel(CompiledModel):
    """A model that eager torch runs while another thread chooses and builds. Made by `torchport.compile`.

    Reading its coverage, its record or its tries blocks until that is done.

    Args:
        specialiser: compiles the model for eager torch.
        args, kwargs: example inputs.
        choose: chooses an engine and compiles the model for it.
    """

    def __init__(
        self,
        specialiser: Specialiser,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        choose: Callable[[], CompiledModel],
    ) -> None:
        super().__init__(specialiser, args, kwargs, lazily=True)
        self._chosen: CompiledModel | None = None
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._choose, args=(choose,), daemon=True)
        self._thread.start()

    def _choose(self, choose: Callable[[], CompiledModel]) -> None:
        try:
            chosen = choose()
        except Exception as error:  # noqa: BLE001  # eager torch goes on running it, and `wait` raises it
            _log.warning("%s keeps running with eager torch: %s", self._specialiser.name, error)
            self._problem = error
            return
        # Not set as a submodule: this module has its parameters already.
        vars(self)["_chosen"] = chosen

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the choice is made, and return whether it is.

        Raises:
            TorchportError: the model cannot be compiled; eager torch goes on running it.
        """
        self._thread.join(timeout)
        if self._problem is not None:
            raise self._problem
        return not self._thread.is_alive()

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the model, with eager torch until the engine is ready.

        Raises:
            RuntimeRefusal: gradients are required.
        """
        if self._chosen is not None:
            return self._chosen(*args, **kwargs)
        refuse_gradients(flatten_call(args, kwargs), self._specialiser.name, TRAINING)
        return self._fallback.run_eagerly(
            "the engine is being chosen", lambda: self._run_eagerly(args, kwargs)
        )

    def extra_repr(self) -> str:
        """As in `CompiledModel`, without waiting: torch asks for it in calls while another thread traces."""
        if self._chosen is not None:
            return self._chosen.extra_repr()
        why = "an engine is being chosen" if self._problem is None else "no engine could be built"
        return f"{self._specialiser.name} on eager torch: {why}"

    def _made(self) -> CompiledModel:
        self.wait()
        assert self._chosen is not None
        return self._chosen

    @property
    def _first(self) -> Specialised:
        return self._made()._first

    @property
    def tries(self) -> Tries | None:
        """The result of trying each engine."""
        return self._made().tries

    @property
    def programs(self) -> list[ProgramRecord]:
        """The records of all programs compiled so far; empty while the engine is being chosen."""
        return [] if self._chosen is None else self._chosen.programs

    @property
    def current_programs(self) -> tuple[Specialised, ...]:
        """The programs built with the current weights, that of the example inputs first."""
        return self._made().current_programs

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls there were, and how many eager torch ran, including while the engine was chosen."""
        own = self._fallback.record
        if self._chosen is None:
            return own
        then = self._chosen.fallbacks
        return Fallbacks(
            own.calls + then.calls, own.fallbacks + then.fallbacks, then.last_reason or own.last_reason
        )

    @property
    def simulated_seconds(self) -> float | None:
        """Always None: engines are measured."""
        return None

    def emit(self, path: str | Path) -> list[Path]:
        """As in `CompiledModel`."""
        return self._made().emit(path)
