"""Files: found, downloaded, checked. The downloads come from a server inside the test."""

import functools
import hashlib
import http.server
import sys
import threading
from pathlib import Path

import pytest

from bayesprop.data import data_folder
from bayesprop.data.folder import PublicFile, fetch
from bayesprop.errors import DataError

CONTENT = b"one, two, three" * 10_000


def public(url="http://127.0.0.1:9/set/file.bin"):
    return PublicFile("set/file.bin", url, hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The address of a folder with one file, on this machine."""
    folder = tmp_path / "public"
    folder.mkdir()
    (folder / "file.bin").write_bytes(CONTENT)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            """Tests say nothing."""

    monkeypatch.setenv("NO_PROXY", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}/file.bin"
        running.shutdown()
        thread.join()


def test_the_argument_wins_then_the_variable_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESPROP_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv("BAYESPROP_DATA")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "bayesprop"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "bayesprop"
    assert data_folder("~/mine") == Path.home() / "mine"


@pytest.mark.parametrize(("platform", "part"), [("darwin", "Library"), ("win32", "AppData")])
def test_the_cache_of_other_systems(monkeypatch, platform, part):
    monkeypatch.delenv("BAYESPROP_DATA", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    assert part in data_folder().parts


def test_a_file_that_is_there_is_checked_and_not_downloaded(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.bin").write_bytes(CONTENT)
    assert fetch(public(), tmp_path) == tmp_path / "set" / "file.bin"


def test_a_damaged_file_is_named_and_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    damaged = tmp_path / "set" / "file.bin"
    damaged.write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=rf"{damaged} is damaged[\s\S]*149999 bytes[\s\S]*write: rm {damaged}"):
        fetch(public(), tmp_path)
    assert damaged.read_bytes() == CONTENT[:-1]


def test_a_missing_file_is_downloaded_once(tmp_path, server, capfd):
    path = fetch(public(server), tmp_path / "data")
    assert path.read_bytes() == CONTENT
    assert "file.bin" in capfd.readouterr().err
    stamp = path.stat().st_mtime_ns
    assert fetch(public(server), tmp_path / "data").stat().st_mtime_ns == stamp


def test_wrong_bytes_from_the_network_are_refused_and_not_kept(tmp_path, server):
    wrong = PublicFile("set/file.bin", server, "0" * 64)
    with pytest.raises(DataError, match=r"could not be downloaded[\s\S]*curl -L"):
        fetch(wrong, tmp_path / "data")
    assert not (tmp_path / "data" / "set" / "file.bin").exists()


def test_no_network_says_how_to_do_it_by_hand(tmp_path, server):
    missing = public(server.replace("file.bin", "nothing.bin"))
    with pytest.raises(DataError, match=r"set/file.bin is missing and could not be downloaded from http"):
        fetch(missing, tmp_path)
    with pytest.raises(DataError, match=r"BAYESPROP_DATA=<a folder that holds set/file.bin>"):
        fetch(missing, tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path, server):
    (tmp_path / "set").write_text("a file where a folder has to be")
    with pytest.raises(DataError, match="FileExistsError"):
        fetch(public(server), tmp_path)


def test_without_pooch_the_line_to_install_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"pip install 'bayesprop\[data\]'"):
        fetch(public(), tmp_path)
