"""The ATen graphs of a model as AOTAutograd hands them to a compiler: forward and backward."""
