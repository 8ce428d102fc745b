"""`heliograph keys`: the table of configuration keys. `--markdown` gives docs/configuration.md; a test compares."""

from __future__ import annotations

from collections.abc import Iterable

import click

from heliograph.cli.out import echo_document, echo_lines
from heliograph.config.keys import KEYS, Key, Scope

HEADINGS = {
    Scope.GLOBAL: ("Once in the file", ""),
    Scope.FLOW: ("Of a flow", "At the top level for every flow, as `A->B.<key>` for one. The flow's own wins."),
    Scope.CLUSTER: ("Of the target cluster", "As `<alias>.<key>`, with the alias of the flow's target."),
    Scope.CLIENT: (
        "Of clients: addresses and security",
        "`<alias>.consumer.<key>` (source) or `<alias>.producer.<key>` (target) wins over `<alias>.<key>`, and "
        "that over `<key>`.",
    ),
}

INTRODUCTION = """\
# Configuration

Written by `heliograph keys --markdown` from the table in `src/heliograph/config/keys.py`; change it there.

Heliograph reads MirrorMaker 2's own file. It is in Java's `.properties` syntax: a backslash is an escape, so a regular
expression needs two of them (`mm2.*\\\\.internal`), and there are no comments at the end of a line.

A file is refused, with every problem in one message, when a value cannot be right or a key is unknown; the nearest
known key is named, and `--lenient` makes a warning of it. A key that MM2 knows and drops where it stands is a warning
that says where it belongs. Keys that have nothing to act on here (Connect's workers, Java's clients) are named in one
warning at start; those whose absence would change what is written (`transforms`, filters in Java, another
`source.cluster.alias`) are refused unless `--lenient` is given. `heliograph explain FILE` prints each value that counts
and its line.

A nearer prefix wins: `A->B.<key>` over `<key>`, `<alias>.<key>` over `<key>`. Two exceptions are MM2's: for clients,
`<alias>.consumer.<key>` wins over `A->B.consumer.<key>` (write `A->B.source.consumer.<key>` to win over both), and
`offset.storage.*` at the top level wins over the target's.

Values may hold `${provider:path:key}`, looked up in the environment, in properties files or in directories:
`config.providers = env`, `config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider`.

A naming policy of your own is a subclass of `heliograph.policy.Policy`. An installed package names it by an entry
point in the group `heliograph.policies`, and `replication.policy.class` holds the entry point's name. Without a package
it is written as `package.module:Class`, and `heliograph.policy.classes` must list it too: nothing else is ever
imported, and connectors' JSON only gets what is installed.

```properties
clusters = us, eu
us.bootstrap.servers = us1:9092,us2:9092
eu.bootstrap.servers = eu1:9092

us->eu.enabled = true
us->eu.topics = orders, payments\\\\..*
```

## Where copying begins

`start` says where partitions begin that have no position yet; one that has a position is never moved by it
(`heliograph offsets set` does that). It is a list of `[topic[:partition]=]where`, of which the first that fits a
partition decides; `topic` is a name or a regular expression, matched in full. Where none fits, the source's
`consumer.auto.offset.reset` decides, as in MM2.

| where | begins at |
| --- | --- |
| `earliest` | the first record that is there |
| `latest` | the end, as it is when the partition is begun |
| `timestamp:2026-11-01T00:00:00Z` | the first record of that time or later (or ms since 1970); none: the end |
| `offset:1200` | that very offset |
| `file:PATH` | what the items in that file say, one a line, `#` for comments |

```properties
us->eu.start = orders:3=offset:1200, orders=timestamp:2026-11-01T00:00:00Z, file:/etc/starts.txt, latest
```

A partition whose offset lies behind its log's end is parked until the source gets there; where retention took the
offset, it begins at the first record that is there, with a warning. A topic that was deleted and made anew
begins at its first record, whatever `start` says (`on.source.recreated`).

## How many partitions

A remote topic has as many partitions as its source and grows with it. `target.partitions` chooses another number, for
all topics of a flow or by topic: a list of `[topic:]count`, of which the first that fits a source topic decides;
`topic` is a name or a regular expression, matched in full. Heartbeats are never divided.

```properties
us->eu.target.partitions = orders.*:12, logs:1
```

- A record goes where Kafka's default partitioner puts its key (murmur2), whoever produced it; records without a key are
  spread by their offsets, 64 at a time. Records of one source partition keep their order in each target partition, so
  those with the same key keep theirs. Each comes once, as ever. The copy does not grow with its source.
- Where the number is the source's own, partitions are copied one by one, as without the key; if the source grows then,
  the topic is parked.
- A topic is parked, and nothing written, if its copy has another number than chosen, or was begun with another one:
  records with the same key would lie in two partitions. Put the number back; or copy it anew: stop, delete the remote
  topic, `heliograph offsets reset`.
- Offsets of groups are translated *at least once*, not exactly. A target partition holds records of all source
  partitions, so a group is placed before the first one that it may not have read, by points that are kept every
  thousand records of a source and a target partition; a group that has read everything is placed at the end. It needs
  a committed offset for each source partition that holds records. In the checkpoints the upstream offset is the sum of
  these. No offset syncs are written.
- `run --until-current` counts the records of divided topics; `--compare` does not read them.

## How many replicas

A replication factor that the file sets is what topics are created with. Where the cluster has fewer brokers, the start
ends with exit code 2 and one message that names key, factor and brokers; nothing is written.

A factor that the file does not set is the default of the table below, or the number of brokers where that is less:
MM2's defaults, 2 for copies and 3 for its own topics, do not fit a cluster of one or two. One warning names topics and
keys, `plan` and `doctor` have a line for it, and so has `/status` (`fewer_replicas`). When the cluster has grown,
`heliograph replicas raise FILE` gives these topics the replicas that they should have
([operating.md](operating.md#replicas)). This holds for copies, positions, offset map, offset syncs, checkpoints,
heartbeats, incidents, quarantine, and for the topics of a Connect worker.

- Brokers count while they are registered, up or not: a broker that restarts lowers no factor. Kafka 4.0 and newer name
  those that are registered and fenced; with older ones, brokers that hold replicas of any topic count too.
- `min.insync.replicas` of a new topic is never more than its factor: where the cluster's default is, the topic gets a
  value of its own, since nothing could be appended to it otherwise.
- `-1` is the cluster's own `default.replication.factor`, and is not lowered.

## How much is copied in a second

`max.bytes.per.second` caps a flow, some of its topics, or both: a list of `[topic=]bytes`. A number alone is for all
topics of the flow together; with a name or a regular expression (matched in full) it is for the topics that fit,
together, and the first that fits a topic decides; the flow's own holds besides. The unit is bytes a second, of batches
as they are appended, compressed as they are: 10 MB/s is `10000000`. Of a topic that is divided (`target.partitions`)
batches count as they are fetched, once, however many partitions their records go to.

```properties
us->eu.max.bytes.per.second = 10000000, history\\\\..*=2000000
```

A cap is one figure, however many tasks the flow has: what one does not use the others get, and what is paused uses
nothing. It is held by not fetching, so what is too much waits on the source, and topics that are far behind wait before
those that are live. Half a second's worth may come at once after a pause; a batch is never cut, so one that is larger
than that is followed by a pause. A partition that has had no turn for more than 5 s counts as stalled, with the cap as
its reason.

## Settings that follow, and what they may not do

Remote topics follow their sources' settings by MM2's rules (`sync.topic.configs.*`, `config.properties.exclude`,
`use.defaults.from`), except for what MM2 does without asking:

- Durability is not lowered (`min.insync.replicas`, `unclean.leader.election.enable`), unless
  `sync.topic.configs.lower.durability = true`.
- Records that the target keeps are not deleted, unless `sync.topic.configs.shorten.retention = true`. So a copy that
  is kept for longer than its source (an archive) stays one. It counts when `retention.ms` or `retention.bytes` would
  become lower (-1 is unlimited), also by falling back to the target's default; when `delete.retention.ms` or
  `min.compaction.lag.ms` would; when `cleanup.policy` would get `delete` and the retention is limited, or `compact`
  where the copy keeps every record, or keeps them for longer than its source; and when `remote.storage.enable` would
  become false. It does not count for `local.retention.*` (records stay in remote storage), `max.compaction.lag.ms`,
  `min.cleanable.dirty.ratio` and `segment.*`.

Longer retention is followed always. A new remote topic is created with its source's settings. What is refused is one
warning in the log, with both values and the key that allows it, and a note of `heliograph plan`.

## Permissions that follow

With `sync.topic.acls.enabled` (the default, as in MM2) ACLs on single topics of the source are added to their remote
topics. Nothing is removed. What differs from MM2:

- Only READ, DESCRIBE and DESCRIBE_CONFIGS are carried over; ALL becomes READ. MM2 leaves out ALLOW WRITE and carries
  the rest: who may delete or alter a topic on the source may do that to its copy.
- Denials are carried over for these three operations, and never for our own principal or for `User:*`: MM2 carries
  `DENY WRITE` for itself, and its copying ends. Our principal is known from the login with PLAIN and SCRAM; with TLS,
  tokens from an endpoint and delegation tokens, `sync.topic.acls.own.principal` names it (`User:CN=mirror,O=…`). While
  it is not known, no denial is made.
- What the source denies is not opened. A denial of any pattern (a topic, a prefix, `*`), principal or host that covers
  a part of an ALLOW is made for that part on the remote topic, before the ALLOW; one that covers all of it, or that
  may not be made, withholds the ALLOW. MM2 knows no denials but those on single topics.

What is withheld is one warning in the log, with principal and topic, a note of `heliograph plan`, and a line of
`heliograph doctor`, which also names denials on the target that lock us out. A target with
`allow.everyone.if.no.acl.found=true` lets only those use a topic that its ACLs name as soon as it has one: give our
principal permissions of its own there, or switch the sync off.

## Many topics through one

`mux.topics` lets topics of a source travel together in one shared topic, each record with headers that say where it
came from; `demux` puts them back into topics and partitions of their own on the target.
[hub-and-spoke.md](hub-and-spoke.md) has the whole of it.

```properties
spoke1->hub.mux.topics = topic, topic2
spoke1->hub.demux = original
```

- Chosen topics are not copied by the flow itself. Where `mux.topics` is set and `topics` is not, nothing else is:
  topics that were not chosen stay where they are.
- `mux.via = straight` writes to a shared topic on the target. `intermediate` makes it on the source, and the flow (or a
  MirrorMaker, with `topics` set to the shared topic) carries it over.
- `demux = original` calls topics as on the source, so that those of several sources meet; `prefixed` calls them
  `spoke1.topic`. Without `demux` records stay in the shared topic.
- `demux.weight` is a source's share of the target while that is the limit: with 3 beside 1 it gets three quarters.
  `demux.max.bytes.per.second` is the most that is put back of it, whatever is free.
- `mux.headers` is a list of the headers that are written: `MUX_SOURCE_TIMESTAMP`, `MUX_SOURCE_BOOTSTRAP_SERVERS`,
  `MUX_INTERMEDIATE_TOPIC`, `MUX_SOURCE_IDENTIFIER`, `MUX_SOURCE_CLUSTER_ID`, `MUX_SOURCE_OFFSET`; `MUX_SOURCE_TOPIC`
  and `MUX_SOURCE_TOPIC_PARTITION` are written always.
"""


@click.command("keys", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--markdown", is_flag=True, help="The page docs/configuration.md.")
@click.option("--all", "everything", is_flag=True, help="Also the keys that have nothing to act on here.")
def command(markdown: bool, everything: bool) -> None:
    """The configuration keys: where they stand, what they hold, their default."""
    if markdown:
        echo_document(page(), nl=False)
        return
    for key in KEYS:
        if key.honoured or everything:
            waiting = "" if key.honoured else "  (without effect)"
            echo_lines([f"{key.name}{waiting}", f"    {key.doc}", f"    {key.kind.value}, default {_default(key)}"])


def page() -> str:
    parts = [INTRODUCTION, "\n## Honoured\n"]
    for scope, (heading, where) in HEADINGS.items():
        parts.append(f"\n### {heading}\n\n" + (f"{where}\n\n" if where else ""))
        parts.append(_table(key for key in KEYS if key.scope is scope and key.honoured))
    parts.append("\n## Known to MM2, without effect here\n")
    for scope, (heading, _) in HEADINGS.items():
        parts.append(f"\n### {heading} (without effect)\n\n")
        parts.append(_table(key for key in KEYS if key.scope is scope and not key.honoured))
    return "".join(parts)


def _table(keys: Iterable[Key]) -> str:
    rows = [f"| `{key.name}` | {key.kind.value} | {_default(key)} | {key.doc} |\n" for key in keys]
    return "".join(["| key | type | default | |\n", "| --- | --- | --- | --- |\n", *rows])


def _default(key: Key) -> str:
    return "–" if key.default is None else f"`{key.default}`"
