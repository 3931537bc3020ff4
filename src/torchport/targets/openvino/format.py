"""The layout of an island built for OpenVINO: what `build` writes and `load` reads.

The payload is the model's XML, padded with zeros to a multiple of 64 bytes, then its weights. The
properties are:

- `format`: the number below;
- `xml_bytes`, `weights_at`: where the XML ends and where the weights start;
- `copies`: which outputs are an input, reshaped at most, by their indices; the model lacks them;
- `input_ranges`: which integer inputs must lie within which bounds, by their indices;
- `finite_inputs`: which inputs must be finite, by their indices; the other float inputs may be infinite;
- `sums`: the names of the numbers that the model gives after its outputs; see `watches.py`.
"""

FORMAT = 6
