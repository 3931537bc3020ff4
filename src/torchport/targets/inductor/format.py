"""The layout of an island built for inductor: what `build` writes and `load` reads.

The payload is the graph as JSON and its weights as safetensors, as the host's islands are, and in packages
inductor's own compiled form. The properties are:

- `format`: the number below;
- `island`: the host's own properties of what comes first; `island_bytes`: where it ends;
- `device`: `cpu` or `cuda`;
- `compiled`, if there is such a form: `at` and `bytes`, where it lies; `direct_bytes`, the length of what
  follows it, the same without inductor (`direct_run.py`); `channels_last`; `made_for`, what must be the same
  here for it to be used; `seal`, by which its maker is known.
"""

FORMAT = 2  # raised whenever a compiled form computes something other than before
