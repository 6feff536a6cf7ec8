"""A killed process is gone, and its lease is undone only when another serves in its place."""

from pathlib import Path

from chaos_mm.faults.process_kill import process_kill
from chaos_mm.host.procfs import command_of, listeners
from tests.host.book import LISTENER, SLEEPER, held, started, state, wait_for
from tests.ports import free_ports


def test_it_is_gone_and_a_successor_at_its_port_is_the_proof(tmp_path: Path):
    port = free_ports(1)
    with started(LISTENER, port) as process:
        wait_for(lambda: _listens(port), "it listens")
        with held(process_kill, tmp_path, listens_on=port, replacement_seconds=20) as lease:
            assert process.wait(5) == -9
            assert lease.achieved["killed_processes"].total == 1.0
            assert str(lease.engine["fatal"]).startswith("restart needed: ")
            successor = started(LISTENER, port)
            second = successor.__enter__()
            wait_for(lambda: _listens(port), "the successor listens")
        assert lease.undo is not None and lease.undo.proven
        assert lease.undo.figures["replacement_pid"] == second.pid
        successor.__exit__(None, None, None)


def test_without_a_successor_the_lease_says_so(tmp_path: Path):
    with started(SLEEPER) as process:
        with held(process_kill, tmp_path, pid=process.pid, replacement_seconds=0.2) as lease:
            wait_for(lambda: state(process.pid) in ("", "Z"), "it is gone")
        undo = lease.undo
        assert undo is not None and not undo.proven
        assert undo.reason.startswith("restart needed: no other process has its command line")


def test_one_that_ran_all_along_is_no_successor(tmp_path: Path):
    with started(SLEEPER) as process, started(SLEEPER) as other:
        wait_for(lambda: command_of(process.pid) == command_of(other.pid) != "", "both have begun")
        with held(process_kill, tmp_path, pid=process.pid, replacement_seconds=0.2) as lease:
            pass
        assert lease.undo is not None and not lease.undo.proven


def _listens(port: int) -> bool:
    return bool(listeners(port))
