"""Spark's own connections are authenticated and encrypted, and its secret is in no command line (fault E6)."""

from __future__ import annotations

import pytest

from heliograph.errors import ConfigError
from heliograph.flow.runner import EngineOnce, Runner
from heliograph.spark.security import DEFAULTS, SECRET, fit_for_argv, secured


@pytest.mark.parametrize("master", [None, "local", "local[*]", "local[4,4]", "yarn", "k8s://https://10.0.0.1"])
def test_spark_makes_the_secret_of_these_itself(master: str | None) -> None:
    assert secured(master, {"spark.executor.memory": "1g"}) == {**DEFAULTS, "spark.executor.memory": "1g"}
    assert DEFAULTS["spark.authenticate"] == "true"
    assert DEFAULTS["spark.network.crypto.enabled"] == "true"


def test_a_master_without_sparks_secret_is_refused_before_anything_is_opened() -> None:
    for begin in (lambda: Runner([], master="spark://host:7077"), lambda: EngineOnce("spark://host:7077", {}, "h")):
        with pytest.raises(ConfigError, match=r"spark\.authenticate\.secret is not set") as caught:
            begin()
        assert "-X spark.authenticate.secret=file:PATH" in caught.value.fix


def test_a_master_with_it_and_one_that_goes_without_by_the_operators_word() -> None:
    assert secured("spark://host:7077", {SECRET: "s"}) == {**DEFAULTS, SECRET: "s"}
    assert secured("spark://host:7077", {"spark.authenticate": "false"}) == {"spark.authenticate": "false"}
    assert len(secured("local-cluster[2,1,1024]", {})[SECRET]) == 64


def test_no_secret_is_an_argument_of_the_jvm() -> None:
    given = {SECRET: "s", "spark.hadoop.fs.s3a.secret.key": "k", "spark.ssl.keyPassword": "p", "spark.app.name": "a"}
    assert fit_for_argv(given) == {"spark.app.name": "a"}
