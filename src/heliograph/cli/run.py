"""`heliograph run FILE`: the flows of a file, until somebody stops them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heliograph.cli.logs import log_options
from heliograph.cli.out import echo
from heliograph.cli.pairs import HELP, pairs_of
from heliograph.cli.waits import wait_option
from heliograph.errors import ConfigError, HeliographError
from heliograph.types import Flow

if TYPE_CHECKING:
    from heliograph.cli.applying import Applying
    from heliograph.flow.runner import EngineOnce, Runner
    from heliograph.http.address import Address


@click.command("run", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("more", nargs=-1, metavar="")
@click.option(
    "--clusters", multiple=True, metavar="ALIAS...", help="Serve only flows into these clusters, as MM2 does."
)
@click.option(
    "--master", metavar="URL", help="Spark to run on: spark://…, k8s://…, yarn. Unset: local, on this machine."
)
@click.option("-X", "settings", multiple=True, metavar="KEY=VALUE", help=f"Any Spark setting; may be repeated. {HELP}")
@click.option(
    "--epoch-seconds",
    type=click.FloatRange(min=1),
    help="Between two plans. Unset: 60, or 5 for each flow if that is more.",
)
@click.option(
    "--report-seconds", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Between JSON lines."
)
@click.option("--lenient", is_flag=True, help="Warn about unknown keys and Java classes instead of refusing the file.")
@click.option("--seconds", type=click.FloatRange(min=0), help="End by itself after so long.")
@click.option("--until-current", is_flag=True, help="Copy what is there now, check it, say so, and end.")
@click.option("--compare", is_flag=True, help="With --until-current: read both sides, compare every record.")
@click.option(
    *("--http", "http"),
    metavar="[https://][HOST:]PORT",
    help="Serve /metrics, /status, /health and Connect's API there; https by FILE's listeners.https.ssl.*.",
)
@click.option("--users", type=click.Path(path_type=Path), help="Who may use --http: a file that `users` writes.")
@click.option("--insecure", is_flag=True, help="Let --http listen beyond loopback without --users: anybody may read.")
@wait_option
@click.option(
    *("--allow-host", "allowed_hosts"),
    multiple=True,
    metavar="NAME",
    help="A further name that requests to --http may use (.example.org: all below it); may be repeated.",
)
@click.option("--take-over", is_flag=True, help="Processes that run these flows let go of them; this one goes on.")
@log_options
def command(
    file: Path,
    more: tuple[str, ...],
    clusters: tuple[str, ...],
    master: str | None,
    settings: tuple[str, ...],
    epoch_seconds: float | None,
    report_seconds: float,
    lenient: bool,
    seconds: float | None,
    until_current: bool,
    compare: bool,
    http: str | None,
    users: Path | None,
    insecure: bool,
    wait: float,
    allowed_hosts: tuple[str, ...],
    take_over: bool,
) -> int:
    """Mirror topics as FILE says, an mm2.properties of MirrorMaker 2, until Ctrl-C or SIGTERM.

    On a terminal a live table shows each flow; otherwise a JSON line every few seconds goes to stdout. A topic or
    partition that cannot go on is parked and named with the reason, and the others go on.

    A cluster that is away when it starts is waited for (--wait), with the broker and the reason on stderr; a refused
    login or certificate is not. Replication factors that FILE does not set are lowered to what a cluster has brokers
    for, with a warning; `heliograph replicas raise FILE` raises them later.

    While it runs, `heliograph pause`, `resume` and `stop` steer flows, topics and partitions, and `heliograph apply
    FILE` (or SIGHUP) lets it take up the edited file. When several processes run a flow with the same settings, one
    copies and the others stand by. A process with other settings is refused unless it is started with --take-over.

    \b
    Examples:
      heliograph run mm2.properties
      heliograph run mm2.properties --clusters eu ap
      heliograph run mm2.properties --http 8083
      heliograph run mm2.properties --until-current
      heliograph run mm2.properties --master spark://host:7077 -X spark.executor.memory=2g

    \b
    Exit codes: 0 stopped in order, 1 a flow failed (--until-current: or something was not copied),
    2 the file or a cluster must be put right (nothing was written), 75 a cluster is unreachable
    (nothing was written; the same call may work later), 130 or 143 ended at once by a second signal.
    """
    from heliograph.cli import current, show, watch
    from heliograph.cli.applying import Applying
    from heliograph.config.load import load

    if compare and not until_current:
        raise click.UsageError("--compare is about --until-current, which is not given")
    chosen = spark_settings(settings)
    address = _address(http, insecure or users is not None, users, allowed_hosts)
    targets = _aliases(clusters, more)
    config = load(file, lenient=lenient).serving(targets)
    for warning in config.warnings:
        echo(f"warning: {warning}", err=True)
    if until_current and (staged := ", ".join(flow.name for flow in config.flows if flow.staged)):
        raise ConfigError(f"--until-current cannot tell when {staged} is current: leave it out, or mux.topics")
    with watch.stopping() as stop:
        runner = make_runner(
            *((*config.flows, *config.heartbeat_only), master, chosen, epoch_seconds),
            file=str(file.absolute()),
            take_over=take_over,
            wait_s=wait,
        )
        applying = None
        if not until_current:  # which copies what its ends were taken of: nothing may change meanwhile
            tls = address is not None and address.tls
            applying = Applying(file, config, runner, lenient=lenient, targets=targets, serves_https=tls)
        steered = steering(runner, file, applying, stop.ask)
        served = serving(runner, address, users, https=config.https, allowed_hosts=allowed_hosts)
        with served, steered, show.view(report_seconds) as view:
            if not watch.start(runner, stop, lambda: view.update(runner.status())):
                watch.end(runner, stop, view)
                return 0
            try:
                course = current.Course(config.flows, runner, compare=compare) if until_current else None
            except HeliographError:  # an end that cannot be asked for
                watch.end(runner, stop, view)
                raise
            watch.follow(runner, stop, view, seconds=seconds, done=course.look if course else lambda: False)
            # What was not ended in order cannot be checked: then it is no success.
            sound = watch.end(runner, stop, view, code_if_late=1 if course else 0)
    if course is not None:
        return course.conclude() if sound else 1
    return 0 if sound else 1


def make_runner(
    flows: Sequence[Flow],
    master: str | None,
    spark_settings: dict[str, str],
    epoch_seconds: float | None,
    *,
    file: str = "",
    take_over: bool = False,
    wait_s: float | None = None,
    spark: EngineOnce | None = None,
) -> Runner:
    """Imported late: it brings PySpark, and a bad file should be told without waiting for that."""
    from heliograph.flow.runner import Runner

    how = {"master": master, "spark_settings": spark_settings, "epoch_seconds": epoch_seconds}
    return Runner(flows, **how, file=file, take_over=take_over, wait_s=wait_s, spark=spark)  # type: ignore[arg-type]


@contextmanager
def steering(runner: Runner, file: Path, applying: Applying | None, end: Callable[[], None]) -> Iterator[None]:
    """Inside, others can say what the flows shall do: by the control socket, and by SIGHUP."""
    if applying is None:
        yield
        return
    import structlog

    from heliograph.cli.applying import on_hangup
    from heliograph.control.server import Server
    from heliograph.errors import ControlError
    from heliograph.flow.steering import CHANGES, Steering

    server = Server(file, Steering(runner, applying.apply).answer, audited=CHANGES)
    try:
        server.start()
    except ControlError as error:  # copying matters more
        log = structlog.get_logger()
        log.warning("pause, resume, stop and apply will not reach this process", why=str(error))
    try:
        with on_hangup(lambda: applying.apply_quietly("SIGHUP"), end):
            yield
    finally:
        server.close()


@contextmanager
def serving(
    runner: Runner,
    address: Address | None,
    users: Path | None = None,
    *,
    https: Mapping[str, str] | None = None,
    allowed_hosts: Sequence[str] = (),
) -> Iterator[None]:
    """Inside, the runner can be asked over HTTP, if somebody wants that. `https`: the file's `listeners.https.`."""
    if address is None:
        yield
        return
    from heliograph.connect.flows import routes
    from heliograph.http.address import is_loopback
    from heliograph.http.certificates import Certificates
    from heliograph.http.guard import Guard
    from heliograph.http.hosts import Hosts
    from heliograph.http.notices import Notices
    from heliograph.http.pages import Pages
    from heliograph.http.routing import Router
    from heliograph.http.server import Server
    from heliograph.http.users import UsersFile
    from heliograph.http.watch import Watch

    local = is_loopback(address.host)
    notices = Notices()
    known = UsersFile(users, notices) if users is not None else None
    tls = Certificates(https or {}, notices) if address.tls else None
    guard = Guard(known, open_to_change=local)
    if not local and users is not None and not address.tls:
        echo("warning: passwords come over the network in clear: serve --http https://HOST:PORT", err=True)
    elif not local and users is None:
        echo("warning: anybody may read; to pause, stop and restart flows over HTTP name --users", err=True)
    pages = Pages(runner, lambda: runner.generation, notices)
    worker = f"{address.host}:{address.port}"
    router = Router(routes(runner, pages, worker, secured=users is not None, notices=notices), guard)
    hosts = Hosts(address.host, more=allowed_hosts)
    server = Server(address.host, address.port, router, hosts=hosts, tls=tls)
    watch = Watch([one for one in (known, tls) if one is not None])
    server.start()
    watch.start()
    echo(f"serving {server.url}/metrics, /status, /health and /connectors", err=True)
    try:
        yield
    finally:
        watch.close()
        server.close()
        guard.close()


def _address(
    http: str | None, insecure: bool, users: Path | None = None, allowed_hosts: Sequence[str] = ()
) -> Address | None:
    from heliograph.http.address import parse_address

    if http is None:
        if insecure or allowed_hosts:
            named = "--users" if users is not None else "--insecure" if insecure else "--allow-host"
            raise click.UsageError(f"{named} is about --http, which is not given")
        return None
    return parse_address(http, insecure=insecure)


def spark_settings(pairs: Sequence[str]) -> dict[str, str]:
    return pairs_of(pairs, "-X", "-X spark.executor.memory=2g")


def _aliases(clusters: Sequence[str], more: Sequence[str]) -> list[str]:
    """`--clusters a b` as MM2's script takes it, where click sees an option and a stray word; `a,b` as well."""
    if more and not clusters:
        raise click.UsageError(f"one FILE only, not also {' '.join(more)!r}")
    return [alias for words in (*clusters, *more) for alias in words.replace(",", " ").split()]
