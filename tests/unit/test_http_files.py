"""Users and certificates while the server runs: taken up when they change, and what is wrong changes nothing."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from structlog.typing import EventDict

from heliograph.cli.run import serving
from heliograph.cli.users import command as users_command
from heliograph.config import load
from heliograph.embedded import certificates as embedded
from heliograph.embedded.certificates import Authority
from heliograph.errors import ConfigError
from heliograph.health.status import Generation
from heliograph.http import certificates, passwords, watch
from heliograph.http.address import Address
from heliograph.http.certificates import Certificates
from heliograph.http.guard import Guard
from heliograph.http.message import Refused, Request
from heliograph.http.notices import Notices
from heliograph.http.users import UsersFile, load_users
from tests.kit import wait_until
from tests.unit.test_http import Flows
from tests.unit.test_metrics import a_partition, a_report


def scrypt(secret: str) -> str:
    """As 0.1 made it."""
    salt = os.urandom(16)
    made = hashlib.scrypt(secret.encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=32, maxmem=64 << 20)
    return f"scrypt$16384$8$1${base64.b64encode(salt).decode()}${base64.b64encode(made).decode()}"


def token(name: str, secret: str) -> Request:
    return Request("GET", "/", headers={"authorization": f"Bearer {name}.{secret}"})


def role_of(guard: Guard, name: str, secret: str) -> str:
    """`401` for who is not let in."""
    try:
        return str(guard.check(token(name, secret), "reader").role)
    except Refused as refused:
        return str(int(refused.status))


class File:
    def __init__(self, path: Path) -> None:
        self.path, self.notices = path, Notices()
        self.hash = passwords.digest("one")
        self.write("alice admin", "bob reader")
        self.users = UsersFile(path, self.notices)
        self.guard = Guard(self.users)

    def write(self, *lines: str) -> None:
        self.path.write_text("".join(f"{line} {self.hash}\n" for line in lines))

    def look(self) -> None:
        """Twice, for a change counts when it lasts."""
        self.users.look()
        self.users.look()


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "users")


# -------------------- users


def test_users_are_taken_up_when_their_file_changes(file: File, logs: list[EventDict]) -> None:
    assert role_of(file.guard, "alice", "one") == "admin"
    assert role_of(file.guard, "carol", "one") == "401"
    file.write("alice reader", "carol reader")
    file.look()
    assert role_of(file.guard, "alice", "one") == "reader", "what was remembered of the older file does not count"
    assert role_of(file.guard, "bob", "one") == "401", "whoever was taken out is out"
    assert role_of(file.guard, "carol", "one") == "reader"
    assert [line["event"] for line in logs if "taken up again" in line["event"]] == ["the users file is taken up again"]
    file.look()
    assert len([line for line in logs if "taken up again" in line["event"]]) == 1


@pytest.mark.parametrize("how", ["gone", "malformed", "empty", "garbage", "a folder", "unreadable"])
def test_a_users_file_that_goes_wrong_while_running_changes_nothing(
    file: File, how: str, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    match how:
        case "gone":
            file.path.unlink()
        case "malformed":
            file.path.write_text(f"alice reader {file.hash}\nmallory admin\n")
        case "empty":
            file.path.write_text("")
        case "garbage":
            file.path.write_bytes(b"\xff\xfe" * 100)
        case "a folder":
            file.path.unlink()
            file.path.mkdir()
        case "unreadable":  # root reads any file, so the refusal is made up
            file.path.chmod(0)
            file.path.touch()

            def refuse(*_arguments: Any, **_more: Any) -> str:
                raise PermissionError(13, "Permission denied")

            monkeypatch.setattr(Path, "read_text", refuse)
    for _ in range(5):
        file.look()
    assert role_of(file.guard, "alice", "one") == "admin", "the last good file stays in force"
    assert role_of(file.guard, "mallory", "one") == "401", "nobody is let in by a broken one"
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "the users file is not taken up, the last good one stays in force"
    ]
    (notice,) = file.notices.lines()
    assert str(file.path) in notice
    monkeypatch.undo()
    if how == "a folder":
        file.path.rmdir()
    file.write("alice reader")
    file.path.chmod(0o600)
    file.look()
    assert role_of(file.guard, "alice", "one") == "reader"
    assert file.notices.lines() == []


def test_a_file_that_is_wrong_for_a_moment_is_not_told(file: File, logs: list[EventDict]) -> None:
    file.path.write_text("")  # as editors do before they write
    file.users.look()
    file.write("alice admin")
    file.look()
    assert not [line for line in logs if line["log_level"] == "error"]
    assert file.notices.lines() == []


def test_half_a_file_is_not_taken_up(file: File, logs: list[EventDict]) -> None:
    """Its first lines make sense by themselves: bob was locked out until the next look."""
    file.write("alice reader")
    file.users.look()
    assert role_of(file.guard, "bob", "one") == "reader"
    assert role_of(file.guard, "alice", "one") == "admin"
    file.write("alice reader", "bob reader", "carol reader")
    file.look()
    assert role_of(file.guard, "bob", "one") == "reader"
    assert [line["users"] for line in logs if "taken up again" in line["event"]] == [3]


def test_a_hash_that_was_cut_off_is_none() -> None:
    """scrypt's prefix is what the same secret makes at that length: three bytes fit one secret in 16 million."""
    for whole in (scrypt("one"), passwords.digest("one")):
        assert passwords.is_sound(whole)
        head, _, hash_ = whole.rpartition("$")
        assert not passwords.is_sound(f"{head}${hash_[:4]}")
        assert not passwords.is_sound(f"{head}${hash_[:16]}")


def by_command(path: Path, *arguments: str, secret: str = "") -> Any:
    return CliRunner().invoke(users_command, [str(path), *arguments], input=secret, standalone_mode=False)


def test_the_last_user_is_not_removed_in_vain(file: File) -> None:
    """A file that names nobody is not taken up, so the one who was taken out could go on logging in."""
    assert by_command(file.path, "bob", "--remove").exception is None
    result = by_command(file.path, "alice", "--remove")
    assert isinstance(result.exception, ConfigError)
    assert "could go on logging in" in str(result.exception)
    assert set(load_users(file.path)) == {"alice"}


def test_what_a_running_process_would_not_take_up_is_not_written(file: File) -> None:
    before = file.path.read_text() + "mallory admin\n"
    file.path.write_text(before)
    for arguments in (["bob", "--remove"], ["carol", "--token"]):
        result = by_command(file.path, *arguments)
        assert isinstance(result.exception, ConfigError)
        assert f"{file.path}:3" in str(result.exception)
        assert file.path.read_text() == before
    assert by_command(file.path, "mallory", "--token").exception is None, "the line itself can be put right"


def test_files_that_cannot_be_read_or_written_are_no_fault_of_ours(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "garbage", tmp_path / "absent" / "users"):
        result = by_command(path, "alice", secret="correct horse battery\n")
        assert isinstance(result.exception, ConfigError), result.exception
        assert str(path) in str(result.exception)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["garbage"], "nothing is left behind"


def test_a_process_does_not_start_on_a_bad_users_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        UsersFile(tmp_path / "absent", Notices())


def test_passwords_of_0_1_are_accepted_and_told_to_be_renewed(tmp_path: Path, logs: list[EventDict]) -> None:
    path, notices = tmp_path / "users", Notices()
    path.write_text(f"old reader {scrypt('one')}\nnew reader {passwords.digest('one')}\n")
    guard = Guard(UsersFile(path, notices))
    assert role_of(guard, "old", "one") == role_of(guard, "new", "one") == "reader"
    assert role_of(guard, "old", "two") == "401"
    (notice,) = notices.lines()
    assert notice.startswith("passwords of old are kept as scrypt")
    assert f"heliograph users {path} old" in notice
    assert sum("renewed" in line["event"] for line in logs) == 1
    listed = CliRunner().invoke(users_command, [str(path)], standalone_mode=False)
    assert listed.output.splitlines() == ["old\treader\trenew: a weak hash", "new\treader"]


@pytest.mark.parametrize("secret", ["short", "eleven char", "x" * 1024])
def test_a_password_has_twelve_letters_at_least(tmp_path: Path, secret: str) -> None:
    result = CliRunner().invoke(
        users_command, [str(tmp_path / "users"), "alice"], input=f"{secret}\n", standalone_mode=False
    )
    assert isinstance(result.exception, click.UsageError)
    assert "letters" in str(result.exception)
    assert not (tmp_path / "users").exists()


def test_new_passwords_are_argon2id_by_rfc_9106() -> None:
    assert passwords.digest("x").startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    for wrong in (
        "$argon2id$v=19$m=4194304,t=3,p=4$c2FsdHNhbHQ$aGFzaGhhc2g",
        "$argon2i$v=19$m=8,t=1,p=1$YWFhYWFhYWE$YWFhYQ",
    ):
        assert not passwords.is_sound(wrong), "a line of the file must not take gigabytes at each login"


# -------------------- certificates


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority", "heliograph")


Issue = Callable[[str, float], dict[str, str]]


@pytest.fixture
def issue(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Issue:
    """A certificate for so many days, put where the server's is."""

    def made(name: str, days: float) -> dict[str, str]:
        monkeypatch.setattr(embedded, "VALID", timedelta(days=days))
        new = authority.issue(name).keystore_pem.read_bytes()
        path = tmp_path / "server.pem"
        path.with_suffix(".new").write_bytes(new)
        path.with_suffix(".new").replace(path)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}

    return made


def name_of(found: Certificates) -> str:
    return certificates.shown_by(found.context).subject.rfc4514_string()


def test_a_certificate_is_taken_up_when_its_file_changes(issue: Issue, logs: list[EventDict]) -> None:
    found = Certificates(issue("first", 90), Notices())
    assert name_of(found) == "CN=first"
    issue("second", 90)
    found.look()
    assert name_of(found) == "CN=second"
    assert [line["event"] for line in logs] == ["the certificate is read again"]


def test_a_certificate_that_cannot_be_read_leaves_the_last_good_one(issue: Issue, logs: list[EventDict]) -> None:
    notices = Notices()
    properties = issue("first", 90)
    found = Certificates(properties, notices)
    Path(properties["ssl.keystore.location"]).write_text("-----BEGIN NONSENSE-----\n")
    for _ in range(5):
        found.look()
    assert name_of(found) == "CN=first"
    assert len([line for line in logs if line["log_level"] == "error"]) == 1
    assert "listeners.https.ssl.keystore.location" in notices.lines()[0]
    issue("second", 90)
    found.look()
    assert (name_of(found), notices.lines()) == ("CN=second", [])
    Path(properties["ssl.keystore.location"]).write_text("")
    with pytest.raises(ConfigError, match=r"listeners\.https\.ssl\.keystore\.location"):
        Certificates(properties, notices)


def test_the_end_of_a_certificate_is_told_ahead_once_at_each_step(
    issue: Issue, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    notices = Notices()
    found = Certificates(issue("ending", 40), notices)
    assert notices.lines() == []
    now = time.time()
    told = []
    for days in (1, 11, 12, 20, 34, 35, 39.5, 39.9, 41, 42):
        monkeypatch.setattr(certificates.time, "time", lambda days=days: now + days * 86_400)
        found.look()
        told.append((days, *notices.lines()))
    assert [line["log_level"] for line in logs] == ["warning", "warning", "warning", "error"]
    said = [line["event"] for line in logs]
    for words, text in zip(("within 30 days", "within 7 days", "within 1 day,", "ended on"), said, strict=True):
        assert words in text
    assert told[0] == (1,)
    assert all(len(one) == 2 for one in told[1:]), "health says it all the time"
    monkeypatch.undo()
    issue("renewed", 90)
    found.look()
    assert notices.lines() == []


def test_who_must_show_a_certificate_still_gets_ours_watched(authority: Authority, issue: Issue) -> None:
    more = {**authority.trust_properties("PEM"), "ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.2"}
    found = Certificates({**issue("mutual", 3), **more}, Notices())
    assert found.context.verify_mode is ssl.CERT_REQUIRED
    assert (found.ends.timestamp() - time.time()) / 86_400 == pytest.approx(3, abs=0.1)


def test_a_mistyped_client_auth_lets_nobody_in(issue: Issue) -> None:
    """Whatever was not `required` or `requested` meant that nobody has to show a certificate."""
    with pytest.raises(ConfigError, match=r"listeners\.https\.ssl\.client\.auth: is 'require'"):
        Certificates({**issue("mutual", 3), "ssl.client.auth": "require"}, Notices())


# -------------------- `run --http https://…`, with both


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.05)
    monkeypatch.setattr(watch.Watch.__init__, "__defaults__", (0.05,))


class Https:
    def __init__(self, port: int, trust: str) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=trust)
        self._context.check_hostname = False

    def ask(self, path: str, authorization: str = "") -> tuple[int, Any, str]:
        connection = http.client.HTTPSConnection("localhost", self._port, timeout=30, context=self._context)
        try:
            connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
            shown = connection.sock.getpeercert()
            response = connection.getresponse()
            return response.status, json.loads(response.read()), dict(one[0] for one in shown["subject"])["commonName"]
        finally:
            connection.close()


@pytest.fixture
def site(
    quick: None, authority: Authority, issue: Issue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Https]:
    lines = ["clusters = us, eu", "us.bootstrap.servers = a:1", "eu.bootstrap.servers = b:1", "us->eu.enabled = true"]
    lines += [f"listeners.https.{key} = {value}" for key, value in issue("first", 90).items()]
    config = load.parse("\n".join(lines).encode())
    (tmp_path / "users").write_text(f"alice admin {passwords.digest('one')}\n")
    flows: Any = Flows(a_report(partitions=(a_partition(),)))
    flows.generation = Generation()
    with serving(flows, Address("0.0.0.0", 0, tls=True), tmp_path / "users", https=config.https):
        said = capsys.readouterr().err
        assert said.startswith("serving https://"), "over TLS nothing is in clear, so nothing is warned about"
        port = int(said.partition("://0.0.0.0:")[2].partition("/")[0])
        yield Https(port, authority.trust_properties("PEM")["ssl.truststore.location"])


def test_run_serves_https_by_the_files_own_keys_and_takes_up_what_changes(
    site: Https, issue: Issue, tmp_path: Path
) -> None:
    """E10: `run --http` had no TLS, and users and certificates were read once."""
    assert site.ask("/health")[::2] == (200, "first")
    assert site.ask("/status")[0] == 401
    assert site.ask("/status", "Bearer alice.one")[0] == 200
    issue("second", 5)
    wait_until(lambda: site.ask("/health")[2] == "second", what="the new certificate")
    (tmp_path / "users").write_text("nonsense\n")

    def notices() -> list[str]:
        told: list[str] = site.ask("/status", "Bearer alice.one")[1]["notices"]
        return told

    wait_until(lambda: len(notices()) == 2, what="two notices")
    assert "ends within 7 days" in notices()[0]
    assert "the last good one stays in force" in notices()[1]
    health = site.ask("/health", "Bearer alice.one")[1]
    assert (health["healthy"], health["notices"]) == (True, notices())
    assert "notices" not in site.ask("/health")[1], "strangers are told no file names"
    (tmp_path / "users").write_text(f"bob reader {passwords.digest('two')}\n")
    wait_until(lambda: site.ask("/status", "Bearer bob.two")[0] == 200, what="the new users file")
    assert site.ask("/status", "Bearer alice.one")[0] == 401


def test_https_without_a_certificate_names_the_key() -> None:
    flows: Any = Flows()
    with pytest.raises(ConfigError, match=r"listeners\.https\.ssl\.keystore\.location"):
        serving(flows, Address("127.0.0.1", 0, tls=True)).__enter__()


def test_the_file_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# who may\n\nalice admin {scrypt('a')}\n")
    assert load_users(path)["alice"].role == "admin"
