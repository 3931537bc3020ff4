"""The ATen graphs of a model as AOTAutograd passes them to a compiler: forward and backward."""
