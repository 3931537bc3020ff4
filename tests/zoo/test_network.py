"""Whether a host can be reached."""

import socket

from torchport.zoo.network import is_reachable


def test_a_listening_port_is_reachable_and_a_closed_one_is_not(monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_reachable(f"http://127.0.0.1:{port}/file")
    assert not is_reachable(f"http://127.0.0.1:{port}/file")


def test_behind_a_proxy_the_proxy_answers(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "")
    assert is_reachable("http://nowhere.invalid/")
