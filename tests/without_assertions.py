"""Runs torchport as `python -O` does, without its `assert` statements.

`-O` itself would compile all of torch's sources once more.
"""

# The beginning of a process's code. What torch has loaded of torchport is loaded again.
PRELUDE = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader

class WithoutAssertions(SourceFileLoader):
    def get_code(self, name):
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True, optimize=1)

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and name.split(".")[0] == "torchport":
            spec.loader = WithoutAssertions(name, spec.origin)
        return spec

for name in [name for name in sys.modules if name.split(".")[0] == "torchport"]:
    del sys.modules[name]
sys.meta_path.insert(0, Finder)
"""
