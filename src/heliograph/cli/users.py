"""`heliograph users FILE`: who may use the REST API, kept as hashes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from heliograph.cli.audited import audited
from heliograph.cli.out import echo
from heliograph.errors import ConfigError


@click.command("users", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name", required=False)
@click.option(
    "--role", type=click.Choice(["reader", "admin"]), default="reader", show_default=True, help="What NAME may."
)
@click.option(
    "--token", is_flag=True, help="Make a bearer token and print it, once; otherwise a password is asked for."
)
@click.option("--remove", is_flag=True, help="NAME may no more.")
def command(file: Path, name: str | None, role: str, token: bool, remove: bool) -> int:
    """List who may use the REST API by FILE, or let NAME: with a password, or with a bearer token.

    FILE holds hashes (argon2id), no secrets; it is what --users of `connect` and `run` takes, which read it again when
    it changes. A password is asked for, or read from standard input where that is no terminal; it has 12 letters at
    least. Passwords made by 0.1 (scrypt) still count; the list names those that should be renewed.

    \b
    Examples:
      heliograph users users.txt alice --role admin
      heliograph users users.txt grafana --token
      heliograph users users.txt
      curl -u alice http://localhost:8083/connectors
    """
    from heliograph.http.passwords import digest, is_outdated
    from heliograph.http.users import NAME, load_users, read_lines, users_of, write_users

    lines = read_lines(file) if file.exists() else []
    if name is None:
        for user in load_users(file).values():
            click.echo(f"{user.name}\t{user.role}" + ("\trenew: a weak hash" if is_outdated(user.hash) else ""))
        return 0
    if not NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r}: letters, digits, _, @ and - only", param_hint="NAME")
    others = ["" if line.split()[:1] == [name] else line for line in lines]  # numbered as in the file
    kept = [line for line, before in zip(others, lines, strict=True) if line or not before]
    if remove:
        if len(kept) == len(lines):
            raise click.UsageError(f"{file} does not name {name}")
        if not any(line.strip() and not line.lstrip().startswith("#") for line in kept):
            raise ConfigError(
                f"{file}: {name} is the last one: running processes take no file that names nobody, so {name} could go "
                "on logging in",
                fix=f"name somebody else first, or give {name} a new password: heliograph users {file} {name}",
            )
        users_of(file, others)
        with audited(f"users remove {name}: {file}"):
            write_users(file, kept)
        echo(f"{name} may no more; processes that run with {file} read it within seconds", err=True)
        return 0
    secret = _token() if token else _password()
    line = f"{name} {role} {digest(secret)}"
    users_of(file, [*others, line])
    with audited(f"users {'change' if len(kept) < len(lines) else 'add'} {name} as {role}: {file}"):
        write_users(file, [*kept, line])
    if token:
        click.echo(f"{name}.{secret}")
    echo(f"{name} may use the API as {role}; processes that run with {file} read it within seconds", err=True)
    return 0


def _token() -> str:
    import secrets

    return secrets.token_urlsafe(32)


def _password() -> str:
    from heliograph.http.passwords import problem_of

    if sys.stdin.isatty():
        secret = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise click.UsageError("no password: give it on standard input, or use a terminal")
    if problem := problem_of(secret):
        raise click.UsageError(f"the password {problem}")
    return secret
