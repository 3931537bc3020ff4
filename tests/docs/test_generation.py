"""What docs/generation.md shows works."""

from docs.markdown import blocks


def test_python_blocks_run(root):
    code = [block.text for block in blocks(root / "docs" / "generation.md") if block.kind == "python"]
    assert code
    exec(compile("\n".join(code), "generation.md", "exec"), {})
