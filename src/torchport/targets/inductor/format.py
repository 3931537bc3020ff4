"""The layout of an island built for inductor: what `build` writes and `load` reads.

The payload is the graph as JSON and its weights as safetensors, like the host's islands, followed in packages
by inductor's own compiled form. The properties are:

- `format`: the number below;
- `island`: the host's properties of the first part; `island_bytes`: the length of that part;
- `device`: `cpu` or `cuda`;
- `compiled`, if there is a compiled form: `at` and `bytes`, its offset and length; `direct_bytes`, the length
  of the direct form after it, which needs no inductor (`direct_run.py`); `channels_last`; `made_for`, the
  versions, machine and option that must match for it to be used; `seal`, which proves who made it.
"""

FORMAT = 3  # raised whenever a compiled form computes something other than before
