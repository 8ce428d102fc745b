"""Who may speak on Spark's own connections, and that nobody else reads them. Pure: settings in, settings out.

Tasks carry the clusters' credentials to where they run, inside Spark's RPC and broadcasts. Spark's ports answer anybody
who reaches them unless it is told otherwise, which on loopback is every user of the machine. So authentication and
encryption are on, for a local Spark too.

The secret is never in a command line, which every user can read, nor in a file: a local Spark, YARN and Kubernetes make
their own, a standalone master's is handed to the JVM over its authenticated gateway (`engine`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from heliograph.errors import ConfigError
from heliograph.types import is_secret

AUTHENTICATE = "spark.authenticate"
SECRET = "spark.authenticate.secret"
DEFAULTS = {
    AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",  # RPC
    "spark.io.encryption.enabled": "true",  # blocks that Spark writes to its folders
}
# For these masters Spark makes a secret of its own (SecurityManager.initializeAuth).
_OWN_SECRET = re.compile(r"local|local\[[^\]]*\]|yarn|k8s://.*")


def secured(master: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with what they leave unsaid. Raises ConfigError for a master whose secret is not given."""
    if settings.get(AUTHENTICATE, "true").strip().lower() == "false":
        return dict(settings)  # said in so many words
    chosen = {**DEFAULTS, **settings}
    if _OWN_SECRET.fullmatch(master or "local") or chosen.get(SECRET):
        return chosen
    if (master or "").startswith("local-cluster["):
        return {**chosen, SECRET: secrets.token_hex(32)}
    raise ConfigError(
        f"--master {master}: {SECRET} is not set: tasks carry the clusters' credentials, and without it Spark hands "
        "them to whoever reaches its ports",
        fix=f"start Spark's master and workers with {AUTHENTICATE}=true and a {SECRET}, and give the same one here: "
        f"-X {SECRET}=file:PATH or env:NAME; on a network that is yours alone, -X {AUTHENTICATE}=false goes without",
    )


def fit_for_argv(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that may stand in a command line."""
    return {key: value for key, value in settings.items() if not is_secret(key)}
