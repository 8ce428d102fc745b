"""Every error Heliograph raises, in one tree.

    HeliographError
    ├── ConfigError                 a file or an argument; lists every problem at once
    ├── WireError                   talking to a broker
    │   ├── Unreachable         ↻   no connection could be made
    │   ├── ConnectionLost      ↻   an established connection ended
    │   ├── TimedOut            ↻   no answer in time
    │   ├── Untrusted               the broker's certificate is not trusted, or ours is refused
    │   ├── LoginFailed             SASL said no
    │   ├── TokenUnavailable    ↻   the token endpoint of OAUTHBEARER cannot be reached, or is not ready
    │   ├── VersionUnsupported      the broker speaks no version of a call that we speak
    │   ├── ProtocolError           bytes that are not what the protocol says
    │   └── BrokerError        (↻)  an error code in an answer; retriable or not as the code is
    ├── BatchError                  bytes that are not a record batch
    │   ├── CorruptBatch            CRC or structure
    │   ├── UnknownCodec
    │   └── RecordTooLarge          one record that the target takes in no batch
    ├── KernelsMissing          ↻   a batch that must be rewritten before the kernels are compiled and loaded
    ├── FlowError                   a flow that cannot run as asked
    │   ├── SameCluster             two aliases, one cluster id
    │   ├── Held                    another process runs this flow
    │   └── Parked                  one partition or topic that cannot go on; carries the reason and the fix
    ├── ControlError                a running process that cannot be told what to do
    ├── WorkerError                 a Connect worker that says no, over its REST API
    │   └── NoSuchConnector
    ├── EngineError                 Spark
    ├── EmbeddedError               Kafka's jars or an embedded broker
    │   └── JavaMissing
    └── InternalError               an exception that no code foresaw: a bug of Heliograph; its traceback is in the log

`condition` is a stable name for programs and tests, `retriable` (↻) says whether trying again may help, `context`
holds what the error is about (flow, topic, partition, offset, broker …). `fix` says what a person can do about it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HeliographError(Exception):
    condition: ClassVar[str] = "ERROR"
    retriable: bool = False

    def __init__(self, message: str, *, fix: str = "", **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.context = context

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}" if self.fix else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark pickles them): keyword-only arguments need help.
        return (_rebuild, (type(self), self.message, self.fix, self.context, self.__dict__))


def _rebuild(cls: type[HeliographError], message: str, fix: str, context: dict[str, Any], state: dict[str, Any]) -> Any:
    error = cls.__new__(cls)
    HeliographError.__init__(error, message, fix=fix, **context)
    error.__dict__.update(state)
    return error


class ConfigError(HeliographError):
    """Every problem of a file or of the arguments, found in one go."""

    condition = "CONFIG"

    def __init__(self, problems: list[str] | str, *, source: str = "", fix: str = "") -> None:
        self.problems = [problems] if isinstance(problems, str) else problems
        self.source = source
        head = f"{source}: " if source else ""
        text = self.problems[0] if len(self.problems) == 1 else "\n  - ".join(["", *self.problems])
        count = "" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"{head}{count}{text}", fix=fix)


class WireError(HeliographError):
    condition = "WIRE"


class Unreachable(WireError):
    condition = "UNREACHABLE"
    retriable = True


class ConnectionLost(WireError):
    condition = "CONNECTION_LOST"
    retriable = True


class TimedOut(WireError):
    condition = "TIMED_OUT"
    retriable = True


class Untrusted(WireError):
    condition = "UNTRUSTED"


class LoginFailed(WireError):
    condition = "LOGIN_FAILED"


class TokenUnavailable(WireError):
    condition = "TOKEN_UNAVAILABLE"
    retriable = True


class VersionUnsupported(WireError):
    condition = "VERSION_UNSUPPORTED"


class ProtocolError(WireError):
    condition = "PROTOCOL"


class BrokerError(WireError):
    """An error code in a broker's answer. `code` and `name` are Kafka's (29, TOPIC_AUTHORIZATION_FAILED)."""

    condition = "BROKER_ERROR"

    def __init__(
        self, code: int, name: str, message: str = "", *, retriable: bool = False, fix: str = "", **context: Any
    ):
        self.code = code
        self.name = name
        self.retriable = retriable
        about = ", ".join(f"{k} {v}" for k, v in context.items())
        super().__init__(
            f"{name}{f' ({about})' if about else ''}{f': {message}' if message else ''}", fix=fix, **context
        )


class BatchError(HeliographError):
    condition = "BATCH"


class CorruptBatch(BatchError):
    condition = "CORRUPT_BATCH"


class UnknownCodec(BatchError):
    condition = "UNKNOWN_CODEC"


class RecordTooLarge(BatchError):
    """One record that the target takes in no batch."""

    condition = "RECORD_TOO_LARGE"


class KernelsMissing(HeliographError):
    """A batch that must be rewritten while the kernels are not loaded. No BatchError: nothing is wrong with it."""

    condition = "KERNELS_MISSING"
    retriable = True


class FlowError(HeliographError):
    condition = "FLOW"


class SameCluster(FlowError):
    condition = "SAME_CLUSTER"


class Held(FlowError):
    condition = "HELD"


class Parked(FlowError):
    condition = "PARKED"


class ControlError(HeliographError):
    condition = "CONTROL"


class WorkerError(HeliographError):
    """A call that a Connect worker refused: `status` is HTTP's (0: none), `said` the worker's own words."""

    condition = "WORKER"

    def __init__(self, message: str, status: int = 0, said: str = "", *, fix: str = "", **context: Any) -> None:
        super().__init__(message, fix=fix, **context)
        self.status, self.said = status, said


class NoSuchConnector(WorkerError):
    condition = "NO_SUCH_CONNECTOR"


class EngineError(HeliographError):
    condition = "ENGINE"
    retriable = True


class EmbeddedError(HeliographError):
    condition = "EMBEDDED"


class JavaMissing(EmbeddedError):
    condition = "JAVA_MISSING"


class InternalError(HeliographError):
    """An exception that no code foresaw. Not retriable: the same input raises it again."""

    condition = "INTERNAL_ERROR"
