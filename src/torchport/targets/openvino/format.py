"""The layout of an island built for OpenVINO: what `build` writes and `load` reads.

The payload is the model's weights, its XML, and in packages the device's own compiled form; each starts at a
multiple of 64 bytes. The weights come first: a compiled form that holds none finds them at their offsets in
a file. The properties are:

- `format`: the number below;
- `weights_bytes`: where the weights end;
- `xml_at`, `xml_bytes`: where the XML lies;
- `compiled`, if there is such a form: `at` and `bytes`, where it lies; `made_for`, what must be the same here
  for it to be used; see `compiled_form.py`;
- `copies`: which outputs are an input, reshaped at most, by their indices; the model lacks them;
- `input_ranges`: which integer inputs must lie within which bounds, by their indices;
- `finite_inputs`: which inputs must be finite, by their indices; the other float inputs may be infinite;
- `sums`: the names of the numbers that the model gives after its outputs; see `watches.py`.
"""

FORMAT = 7


def aligned(size: int) -> int:
    """Return the next multiple of 64: OpenVINO uses weights where they lie, if they lie so."""
    return (size + 63) // 64 * 64
