"""The HTML of a coverage record, for a notebook."""

from torchport.records import Coverage, StayedOp


def test_a_notebook_shows_what_stays_as_text():
    stays = StayedOp("aten.<b>", "n", "dtype", "not <i>", "cast & go", "", "", 0, 0)
    coverage = Coverage("<m>", "host", 3, 2, 2, 1, 0, 0, 0, 0, 0, (), (stays, stays))
    shown = coverage._repr_html_()
    assert "&lt;m&gt; on host: 1 of 3 ops" in shown
    assert "<td><code>aten.&lt;b&gt;</code></td><td>2</td><td>dtype</td>" in shown
    assert "not &lt;i&gt;" in shown
    assert "cast &amp; go" in shown
