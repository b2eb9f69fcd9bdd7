"""Machines of their own, as far as their networks go: namespaces, and what lies between them.

The standard library and iproute2 are all it needs, as root.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")


class Unavailable(unittest.SkipTest):
    """Network namespaces cannot be made here, and why. A test that does not catch it is skipped."""

    def __init__(self, why):
        super().__init__(f"network namespaces cannot be made here: {why}")


def ip(*words):
    if not IP:
        raise Unavailable("iproute2 is not installed")
    done = subprocess.run([IP, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(done.stderr.strip())
    return done.stdout


def take_back(*words):
    """ip, of what may not be there."""
    if IP:
        subprocess.run([IP, *words], capture_output=True, check=False)


def at_once():
    """Of a process that is started (preexec_fn): what waits for another end waits for nothing else on the machine."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))


def processes_in(name):
    if not IP:
        return []
    done = subprocess.run([IP, "netns", "pids", name], capture_output=True, text=True, check=False)
    return [int(process) for process in done.stdout.split()]


def remove_processes(name):
    for process in processes_in(name):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove_namespace(name):
    """With the processes in it."""
    remove_processes(name)
    take_back("netns", "delete", name)


class Network:
    """A bridge of this namespace, and others on it, each with a cable that can be cut.

    As a context manager it goes with all that runs there.
    """

    def __init__(self):
        self.number = os.getpid() % 250
        self.bridge = f"aer{os.getpid()}"
        self.names = []
        try:
            ip("link", "add", self.bridge, "type", "bridge")
            ip("address", "add", f"10.213.{self.number}.254/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
        except BaseException:
            self.remove()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def cable(self, place):
        return f"{self.bridge}v{place}"

    def add(self):
        """The name and the address of one more namespace."""
        place = len(self.names) + 1
        name, address = f"{self.bridge}-{place}", f"10.213.{self.number}.{place}"
        ip("netns", "add", name)
        self.names.append(name)
        ip("link", "add", self.cable(place), "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", self.cable(place), "master", self.bridge, "up")
        ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        return name, address

    def _set(self, name, state):
        ip("link", "set", self.cable(self.names.index(name) + 1), state)

    def cut(self, name):
        self._set(name, "down")

    def mend(self, name):
        self._set(name, "up")

    def remove(self):
        # A namespace goes when its last process has gone; the next network has cables of these names.
        for place, name in enumerate(self.names, 1):
            take_back("link", "delete", self.cable(place))
            remove_namespace(name)
        take_back("link", "delete", self.bridge)


# Windows of TCP that 10 Gbit/s over 20 ms fill, as an administrator sets them for such a link; and the control of
# congestion that every kernel lets a namespace have.
TCP = {"tcp_wmem": "4096 65536 67108864", "tcp_rmem": "4096 131072 67108864", "tcp_congestion_control": "reno"}


class SlowLink:
    """Two namespaces, and a cable between them with a delay one way and a rate. `program`: slow_link of the build.

    As a context manager it goes with all that runs there.
    """

    def __init__(self, program, delay_us, gbits):
        number = os.getpid() % 250
        self.names = [f"aerie-{os.getpid()}-{end}" for end in "ab"]
        self.addresses = [f"10.214.{number}.{end}" for end in (1, 2)]
        self.cable = None
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                for key, value in TCP.items():
                    ip("netns", "exec", name, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{key}")
            self._connect(program, delay_us, gbits)
        except BaseException:
            self.remove()
            raise

    def _connect(self, program, delay_us, gbits):
        self.cable = subprocess.Popen([program, "slow0", *self.names, str(delay_us), str(gbits)],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.cable.stdout.readline() != "ready\n":
            raise Unavailable(self.cable.communicate()[1].strip())
        for name, address in zip(self.names, self.addresses):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "slow0")
            ip("-n", name, "link", "set", "slow0", "txqueuelen", "10000", "up")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def cut(self):
        """Nothing passes until mend(), and nobody is told."""
        self.cable.send_signal(signal.SIGSTOP)

    def mend(self):
        self.cable.send_signal(signal.SIGCONT)

    def remove(self):
        if self.cable:
            self.cable.kill()
            self.cable.wait()
        for name in self.names:
            remove_namespace(name)

    def processes(self, end):
        return processes_in(self.names[end])

    def inside(self, end, *command):
        """The words that run the command at an end, 0 or 1."""
        return [IP, "netns", "exec", self.names[end], *command]

    def mpirun(self, folder, *command, looks=True):
        """The words that start a rank at each end, the leader at 0. A script of it comes into the folder.

        `looks`: mpirun sees whether the other machine is there, with the flags of docs/scaling/ranks.md.
        """
        agent = pathlib.Path(folder) / "agent"
        # What ssh is for on machines: a host's name, then a command for its shell.
        agent.write_text(f'#!/bin/sh\nshift\nexec {IP} netns exec {self.names[1]} unshare --uts '
                         'sh -c \'hostname other; exec sh -c "$*"\' sh "$@"\n')
        agent.chmod(0o755)
        alive = {}
        if looks:
            alive = {"oob_tcp_keepalive_time": 1, "oob_tcp_keepalive_intvl": 1, "oob_tcp_keepalive_probes": 2}
        return self.inside(0, "mpirun", "-np", "2", "-host", ",".join(self.addresses), "-bind-to", "none",
                           "-mca", "plm_rsh_agent", str(agent), "-mca", "btl", "tcp,self",
                           *[str(word) for key, value in alive.items() for word in ("-mca", key, value)], *command)

    def measure(self):
        """Microseconds there and back of a small packet, a median, and Gbit/s of a TCP connection."""
        script = str(pathlib.Path(__file__).with_name("measure_link.py"))
        with subprocess.Popen(self.inside(1, sys.executable, script, self.addresses[1]), stdout=subprocess.PIPE,
                              text=True, preexec_fn=at_once) as other:
            other.stdout.readline()  # it listens
            said = subprocess.run(self.inside(0, sys.executable, script, self.addresses[1], "ask"), check=True,
                                  capture_output=True, text=True, preexec_fn=at_once).stdout
        return [float(word) for word in said.split()]
