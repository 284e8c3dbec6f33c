"""Test the build cache in a bucket of S3: s3fs with moto's server, which checks signatures and enforces policies."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.matrix

TABLE = """\
[tool.aotcuda]
arch = ["sm_80", "sm_90"]

[tool.aotcuda.modules."pkg.kernels"]
source = "pkg._kernels"
kernels.first = "void(float32[::1])"
"""
SOURCE = "from numba import cuda\n\n\n@cuda.jit\ndef first(x):\n    x[cuda.grid(1)] = 3\n"
SERVER = """\
import os, sys
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = sys.argv[1]
from moto.server import main
main(["-H", "127.0.0.1", "-p", sys.argv[2]])
"""
ACTIONS = {"read": ["s3:GetObject", "s3:ListBucket"], "read-write": ["s3:*"]}
SETUP_CALLS = 1 + 3 * len(ACTIONS)
"""Calls that set the server up, before it checks signatures and policies."""

Keys = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Keys]]:
    """Return the server's address, and variables with the credentials of a user who may read and one who may write."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    log = tmp_path_factory.mktemp("s3") / "log"
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(SETUP_CALLS), "0"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=stream, text=True)
    try:
        url = next(match[0] for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
        first = {"endpoint_url": url, "region_name": "us-east-1"}
        first |= {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        boto3.client("s3", **first).create_bucket(Bucket="wheels")
        iam = boto3.client("iam", **first)
        keys: Keys = {}
        for name, actions in ACTIONS.items():
            iam.create_user(UserName=name)
            statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
            policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
            iam.put_user_policy(UserName=name, PolicyName="s3", PolicyDocument=policy)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            keys[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        yield url, keys
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {"pyproject.toml": TABLE, "pkg/__init__.py": "", "pkg/_kernels.py": SOURCE}
    return projects.put(tmp_path.resolve() / "project", files)


def start(root: Path, server: str, keys: dict[str, str], folder: Path, **environ: str) -> subprocess.Popen[str]:
    """Start a build with the bucket as its cache."""
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AOTCUDA_BUILD_CACHE": f"s3://wheels/{root.parent.name}",
        "AOTCUDA_CACHE_DIR": str(folder),
        "AOTCUDA_PROGRESS": "",
        "AWS_ENDPOINT_URL": server,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        **keys,
        **environ,
    }
    command = [sys.executable, "-W", "ignore", "-m", "aotcuda", "build", "--out", str(folder / "out")]
    return subprocess.Popen(command, cwd=root, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait(process: subprocess.Popen[str]) -> str:
    """Wait for a build, which must succeed, and return its error output."""
    _, err = process.communicate()
    assert process.returncode == 0, err
    return err


WRITE = {"AOTCUDA_BUILD_CACHE_ACCESS": "read-write"}
NOT_USED = "the build continues without the build cache: s3://wheels/"


def test_one_user_fills_and_another_reads_the_bucket(project: Path, server: tuple[str, Keys], tmp_path: Path) -> None:
    address, keys = server
    first = wait(start(project, address, keys["read-write"], tmp_path / "a", **WRITE))
    assert "; 0 of " in first
    again = wait(start(project, address, keys["read"], tmp_path / "b"))
    assert "all from the build cache" in again
    assert "warning" not in first + again
    assert projects.tree(tmp_path / "a" / "out") == projects.tree(tmp_path / "b" / "out")


@pytest.mark.parametrize(
    ("who", "access"),
    [("read", WRITE), ("", WRITE), ("", {}), ("stranger", {})],
    ids=["may not write", "no credentials, write", "no credentials, read", "wrong secret"],
)
def test_refused_bucket_access_gives_one_warning(
    who: str, access: dict[str, str], project: Path, server: tuple[str, Keys], tmp_path: Path
) -> None:
    address, keys = server
    keys = {**keys, "": {}, "stranger": {**keys["read"], "AWS_SECRET_ACCESS_KEY": "guessed"}}
    err = wait(start(project, address, keys[who], tmp_path / "a", **access))
    assert err.count("warning: ") == 1, err
    assert NOT_USED in err
    assert (tmp_path / "a" / "out" / "pkg" / "kernels.aotcuda" / "kernels.fatbin").is_file()
