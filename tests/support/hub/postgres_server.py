"""A real PostgreSQL in a folder of its own, for the whole session; a database of its own for each test that asks."""

import glob
import os
import shutil
import subprocess
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import psutil
import pytest

from algo.machine.ports import free_port

PASSWORD = "moon-%-river"


def programs() -> Path | None:
    """The folder of the newest installed server's programs."""
    found = shutil.which("postgres")
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
    return Path(found).resolve().parent if found else Path(folders[-1]) if folders else None


class PostgresServer:
    """A server on a port of 127.0.0.1 and a socket in its folder, to be killed and started again."""

    def __init__(self, folder: Path, *options: str):
        self.folder = folder
        self.port = free_port()
        self._options = options
        self._programs = programs()
        self.made: set[str] = set()
        self.free: list[str] = []
        # The server refuses to run as root.
        self._as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if not os.getuid() else []

    @property
    def data(self) -> Path:
        """Its files."""
        return self.folder / "data"

    def initialise(self):
        """Make its files."""
        self.folder.mkdir(exist_ok=True)
        if self._as_user:
            shutil.chown(self.folder, "postgres", "postgres")
        (self.folder / "password").write_text(PASSWORD)
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "scram-sha-256", "--no-sync", "--no-instructions",
                  f"--pwfile={self.folder / 'password'}", "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
        return self

    def start(self):
        """Return once it answers."""
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1 " + " ".join(
            f"-c {option}" for option in self._options
        )
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "120", "-s", "-l", self.folder / "log", "-o", options, "start")
        return self

    def stop(self, mode: str = "fast"):
        """Stop it; "immediate" is a crash."""
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "120", "-s", "-m", mode, "stop")

    def kill(self):
        """``kill -9`` of the server and, with it, of all that serve connections."""
        server = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, 60)  # as long as one has the memory they share, no other server starts

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        """The address of a database in it."""
        return f"postgresql://postgres:{password.replace('%', '%25')}@127.0.0.1:{self.port}/{database}"

    async def make_database(self, name: str) -> str:
        """A new database; returns its address."""
        connection = await asyncpg.connect(self.url())
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()
        self.made.add(name)
        return self.url(name)

    def _run(self, program, *arguments):
        command = [*self._as_user, self._programs / program, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{program}: {done.stdout} {done.stderr}"


def new_server(*options: str) -> PostgresServer:
    """A server in a new folder that the server's user can reach; the caller removes it with ``discard``.

    Skips, or fails where REQUIRE_POSTGRES says so, if no server is installed.
    """
    if programs() is None:
        (pytest.fail if os.environ.get("REQUIRE_POSTGRES") else pytest.skip)("no PostgreSQL server is installed")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    folder.chmod(0o755)
    return PostgresServer(folder, *options).initialise()


def discard(server: PostgresServer):
    """Stop a server and remove its folder."""
    if (server.data / "postmaster.pid").exists():
        with suppress(psutil.NoSuchProcess):
            server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server():
    """One for all tests: quick, and not made to survive a power cut."""
    server = new_server("fsync=off", "max_connections=200", "shared_buffers=64MB").start()
    yield server
    discard(server)


_numbers = iter(range(1, 1_000_000))


@asynccontextmanager
async def a_database(server: PostgresServer):
    """An empty database in it; its address, with the password in it. A hub's tables may be there, empty, too."""
    name = server.free.pop() if server.free else f"games{next(_numbers)}"
    yield server.url(name) if name in server.made else await server.make_database(name)
    await _empty(server.url(name))
    server.free.append(name)


async def _empty(url: str):
    """Quicker than to make another."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "agl_hub"})
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'agl_hub'")
    names = {row[0] for row in tables} - {"marks"}
    if names:
        await connection.execute(
            f"TRUNCATE {', '.join(names)} RESTART IDENTITY; DELETE FROM marks WHERE key = 'resources'; "
            "UPDATE marks SET value = '0' WHERE key = 'completions'"
        )
    await connection.close()


@pytest.fixture
async def postgres_url(postgres_server):
    """An empty database's address."""
    async with a_database(postgres_server) as url:
        yield url
