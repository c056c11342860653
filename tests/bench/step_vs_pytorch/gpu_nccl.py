# SPDX-License-Identifier: Apache-2.0
"""Ranks that share one GPU and talk to each other over NCCL (tests/support/one_gpu_rank.sh): every run beside the same ranks over staged MPI,
and what a killed and a stopped rank do. fp32 unless a name says otherwise."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from gpu_mixture import experts
from gpu_runs import agree, nvidia_smi, record, started

STEPS, KILL_SECONDS, STOP_TIMEOUT, STOP_SLACK = 6, 5.0, 10, 5.0
FOUR = {"batch.micro": 2}  # microbatches
PIPELINE = {"mesh.pipeline": 2, "model.layers": 4} | FOUR
ONE_PART = {"batch.micro": 8}  # all ranks work on one part of the batch
BF16 = 2e-2
CASES = {  # part: name: ranks, settings, allowed
    "first": {
        "fsdp": (2, {}, 1e-6),
        "fsdp on 4 ranks": (4, {}, 1e-6),
        "hsdp": (4, {"mesh.replicate": 2}, 1e-6),
        "tensor": (2, {"mesh.tensor": 2} | ONE_PART, 1e-6),
        "pipeline 1f1b": (2, PIPELINE | {"pipeline.schedule": "1f1b"}, 1e-6),
        "pipeline zbv": (2, PIPELINE | {"pipeline.schedule": "zbv"}, 1e-6),
        "context gather": (2, {"mesh.context": 2, "context.method": "gather"} | ONE_PART, 1e-6),
        "context heads": (2, {"mesh.context": 2, "context.method": "heads"} | ONE_PART, 1e-6),
        "experts": (2, experts(8, 2, 64) | {"mesh.expert": 2}, 1e-6),
        "bf16_wire": (2, {"precision.reduce": "bf16_wire"}, 1e-6),
        "windows": (2, {"comm.nccl_windows": True}, 1e-6),
    },
    "rest": {
        "default protocols": (4, {"environment": {"NCCL_ALGO": "", "NCCL_PROTO": ""}}, 1e-6),
        "deterministic, twice": (2, {"run.deterministic": True}, 0.0),
        "kept after forward": (2, {"sync.policy": "deferred", "sync.reshard_after_forward": 2, "batch.micro": 1}, 1e-6),
        "kept after forward, windows": (2, {"sync.policy": "deferred", "sync.reshard_after_forward": 2, "batch.micro": 1,
                                            "comm.nccl_windows": True}, 1e-6),
        "bf16_wire, windows": (2, {"precision.reduce": "bf16_wire", "comm.nccl_windows": True}, 1e-6),
        "bf16_wire, windows, 4 ranks": (4, {"precision.reduce": "bf16_wire", "comm.nccl_windows": True}, 1e-6),
        "pipeline and tensor": (4, PIPELINE | {"pipeline.schedule": "1f1b", "mesh.tensor": 2}, 1e-6),
        "context and shards": (4, {"mesh.context": 2, "context.method": "gather", "batch.micro": 4}, 1e-6),
        "bf16": (2, {"precision.compute": "bf16", "device.cuda_graphs": True}, BF16),
    },
}


class NcclRuns:
    """Runs on one GPU, over NCCL and over MPI."""

    def __init__(self, arguments, work, make_runs):
        self.a, self.runs = arguments, make_runs(arguments, work, "small", STEPS, 8)
        self.wrapper = arguments.wrapper
        self.known = {}
        self.environment = {"TRIREME_SIMULATED_GPU": "concurrent"} if arguments.rehearsal else {}  # collectives are pending after their launch

    def command(self, run_file, ranks, backend, *options):
        wrapper = ["bash", self.wrapper] if backend == "nccl" else []
        return [str(word) for word in ("mpirun", "--oversubscribe", "--bind-to", "none", *options, "-n", ranks, *wrapper, self.a.trireme, "train", run_file)]

    def run_file(self, settings, output, ranks, backend):
        ours = {key: value for key, value in settings.items() if backend == "nccl" or not key.startswith("comm.nccl")}
        return self.runs.run_file({"precision.compute": "fp32"} | ours | {"comm.backend": backend}, output, ranks)

    def rows(self, settings, ranks, backend):
        with tempfile.TemporaryDirectory(dir=self.runs.work) as output:
            began = time.time()
            self.runs.run(self.command(self.run_file(settings, output, ranks, backend), ranks, backend), **(self.environment if backend == "nccl" else {}),
                          **settings.get("environment", {}))
            return started(rows_of(output), began)

    def reference(self, settings, ranks):
        """Of a run over MPI; several cases may have one."""
        key = json.dumps([{k: v for k, v in settings.items() if not k.startswith("comm.nccl") and k != "environment"}, ranks], sort_keys=True)
        if key not in self.known:
            self.known[key] = self.rows({k: v for k, v in settings.items() if k != "environment"}, ranks, "mpi")
        return self.known[key]


def rows_of(output):
    file = pathlib.Path(output) / "metrics.jsonl"
    rows = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    return [row for row in rows if "loss" in row]


def parity(arguments, runs, part):
    """Whether all runs of a part agree; a rehearsal takes one of each kind of group."""
    whole, left_out = True, ("context heads", "tensor", "fsdp on 4 ranks", "kept after forward", "bf16_wire, windows, 4 ranks", "bf16_wire, windows")
    for name, (ranks, settings, allowed) in CASES[part].items():
        if arguments.rehearsal and name in left_out:
            continue
        twice = name.endswith("twice")
        with concurrent.futures.ThreadPoolExecutor() as pair:  # side by side: half of a run is its start
            ours = pair.submit(runs.rows, settings, ranks, "nccl")
            theirs = pair.submit(runs.rows, settings, ranks, "nccl") if twice else pair.submit(runs.reference, settings, ranks)
            whole = agree(arguments, step_of(part), f"NCCL against MPI: {name}", lambda run: run.result(), (ours,), (theirs,), allowed) and whole
    return whole


def step_of(part):
    return "nccl" if part == "first" else "nccl-more"


def ranks_below(launcher):
    """By rank the process ids of a launcher's program, from the environment of all processes."""
    found = {}
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = dict(word.split("=", 1) for word in (directory / "environ").read_text(errors="replace").split("\0") if "=" in word)
            running = (directory / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
            trireme = "trireme" in os.readlink(directory / "exe")
        except OSError:
            continue
        if running and trireme and environment.get("GPU_NCCL_JOB") == str(launcher) and "OMPI_COMM_WORLD_RANK" in environment:
            found[int(environment["OMPI_COMM_WORLD_RANK"])] = int(directory.name)
    return found


def wait_until(true, seconds):
    """Whether it became true, and the seconds that it took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if true():
            return True, time.monotonic() - began
        time.sleep(0.02)
    return False, time.monotonic() - began


class Job:
    """A long run over NCCL whose ranks get signals."""

    number = 0

    def __init__(self, runs, ranks, settings, *options):
        Job.number += 1
        self.key, self.runs, self.ranks = f"{os.getpid()}.{Job.number}", runs, ranks
        self.output = pathlib.Path(tempfile.mkdtemp(dir=runs.runs.work))
        run_file = runs.run_file(settings, self.output / "out", ranks, "nccl")
        self.log = open(self.output / "log.txt", "w+", encoding="utf-8")
        self.launcher = subprocess.Popen(runs.command(run_file, ranks, "nccl", *options), stdout=self.log, stderr=subprocess.STDOUT,
                                         env=os.environ | runs.environment | {"GPU_NCCL_JOB": self.key})

    def pids(self):
        return ranks_below(self.key)

    def steps(self):
        return len(rows_of(self.output / "out"))

    def begins(self, steps=3):
        """Whether it has done some steps."""
        return wait_until(lambda: self.steps() >= steps or self.launcher.poll() is not None, self.runs.a.limit)[0] and self.launcher.poll() is None

    def text(self):
        self.log.flush()
        return (self.output / "log.txt").read_text(errors="replace")

    def dumps(self):
        return sorted(int(re.search(r"\d+", file.name)[0]) for file in (self.output / "out").glob("hang-rank*.json"))

    def end(self):
        """Ends what is left; how many processes that were."""
        left = self.pids()
        for pid in left.values():
            os.kill(pid, signal.SIGKILL)
        if self.launcher.poll() is None:
            self.launcher.kill()
        self.launcher.wait()
        return len(left)


def long_run(arguments, steps=200):
    """Of steps that last: enough of them that a signal meets one."""
    return {"train.steps": steps, "comm.timeout_seconds": STOP_TIMEOUT if not arguments.rehearsal else 6}


def killed(arguments, runs, ranks, *options):
    """SIGKILL of the last rank: the others end within seconds, with the rank's name and a report."""
    job = Job(runs, ranks, long_run(arguments), *options)
    last, case = ranks - 1, f"killed rank, {ranks} ranks" + (", recovery" if "--enable-recovery" in options else "")
    pids = job.pids() if job.begins() else {}
    if last not in pids:
        text = job.text()
        job.end()
        record(arguments, "nccl", case=case, error=f"it did not begin: {text[-300:]}")
        print(f"{case}: did not begin: {text[-1500:]}", flush=True)
        return False
    os.kill(pids[last], signal.SIGKILL)
    ended, seconds = wait_until(lambda: not job.pids(), 60)
    time.sleep(0.5)  # what they wrote last
    text, dumps, left = job.text(), job.dumps(), job.end()
    # A launcher that ends the job drops later output of the ranks: the reports have the message.
    told = text + "".join(file.read_text() for file in (job.output / "out").glob("hang-rank*.json"))
    named = re.search(rf"(No longer running|Wrote nothing): (.*, )?rank {last} ", told) is not None
    right = ended and seconds <= KILL_SECONDS and named and len(dumps) > 0 and last not in dumps
    record(arguments, "nccl", case=case, seconds=seconds, named=named, dumps=dumps, left=left, right=right)
    print(f"{case}: the others ended after {seconds:.1f} s, rank named: {named}, reports of ranks {dumps}, {left} processes left: "
          f"{'right' if right else 'WRONG'}", flush=True)
    if not right:
        print(text[-3000:], flush=True)
    return right


def stopped(arguments, runs):
    """SIGSTOP of the last rank beyond the deadline: exit code 7 with the operation and the rank."""
    settings = long_run(arguments)
    timeout, job = settings["comm.timeout_seconds"], Job(runs, 2, settings)
    pids = job.pids() if job.begins() else {}
    if 1 not in pids:
        text = job.text()
        job.end()
        record(arguments, "nccl", case="stopped rank", error=f"it did not begin: {text[-300:]}")
        print(f"stopped rank: did not begin: {text[-1500:]}", flush=True)
        return False
    os.kill(pids[1], signal.SIGSTOP)
    began = time.monotonic()
    try:
        code = job.launcher.wait(timeout + STOP_SLACK + 20)
    except subprocess.TimeoutExpired:
        code = None
    seconds = time.monotonic() - began
    text, dumps = job.text(), job.dumps()
    gone, _ = wait_until(lambda: not job.pids(), 10)
    left = job.end()
    named = re.search(r"Hang: .*rank 1 ", text) is not None
    right = code == 7 and seconds <= timeout + STOP_SLACK and named and 0 in dumps and gone  # mpirun continues the stopped rank before it ends it
    record(arguments, "nccl", case="stopped rank", seconds=seconds, code=code, named=named, dumps=dumps, left=left, right=right)
    print(f"stopped rank: exit code {code} after {seconds:.1f} s (timeout {timeout}), rank named: {named}, reports of ranks {dumps}: "
          f"{'right' if right else 'WRONG'}", flush=True)
    if not right:
        print(text[-3000:], flush=True)
    return right


def resumed(arguments, runs):
    """SIGSTOP for half of the deadline: the run continues to the same losses."""
    timeout = long_run(arguments)["comm.timeout_seconds"]
    settings = {"train.steps": 40, "comm.timeout_seconds": timeout}
    job = Job(runs, 2, settings)
    pids = job.pids() if job.begins() else {}
    if 1 in pids:
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(timeout / 2)
        os.kill(pids[1], signal.SIGCONT)
    try:
        code = job.launcher.wait(arguments.limit)
    except subprocess.TimeoutExpired:
        code = None
    rows, text, left = rows_of(job.output / "out"), job.text(), job.end()

    def ours():
        if code != 0 or 1 not in pids:
            raise RuntimeError(f"exit code {code}: {text[-500:]}")
        return rows

    right = agree(arguments, "nccl", "NCCL against MPI: a rank stopped for half of the deadline", lambda run: run(), (ours,),
                  (lambda: runs.rows(settings, 2, "mpi"),), 1e-6)
    return right and left == 0


def refused(arguments, runs):
    """Two ranks with one id, and a rank without: exit code 5 and what to do."""
    whole = True
    for case, environment in (("one id for all", {"NCCL_HOSTID": "same"}), ("a rank without an id", {"ONE_GPU_WITHOUT_ID": "1"})):
        with tempfile.TemporaryDirectory(dir=runs.runs.work) as output:
            done = subprocess.run(runs.command(runs.run_file({}, output, 2, "nccl"), 2, "nccl"), capture_output=True, text=True, check=False,
                                  env=os.environ | environment, timeout=arguments.limit)
        right = done.returncode == 5 and "NCCL_HOSTID" in done.stderr
        record(arguments, "nccl", case=f"refused: {case}", code=done.returncode, right=right)
        print(f"refused: {case}: exit code {done.returncode}: {'right' if right else 'WRONG ' + done.stderr[-500:]}", flush=True)
        whole = whole and right
    return whole


def nccl(arguments, work, make_runs):
    """True when everything of a part is right."""
    memory_before = nvidia_smi("memory.used")
    runs, part = NcclRuns(arguments, work, make_runs), arguments.part
    whole = True
    if part in ("first", "ends"):
        patience = ("--mca", "odls_base_sigkill_timeout", "10")
        checks = [lambda: refused(arguments, runs), lambda: stopped(arguments, runs), lambda: killed(arguments, runs, 2, *patience),
                  lambda: killed(arguments, runs, 4, *patience), lambda: resumed(arguments, runs)]
        if not arguments.rehearsal:
            checks.insert(4, lambda: killed(arguments, runs, 2, "--enable-recovery"))
        for check in checks:
            whole = check() and whole
    if part in ("first", "rest"):
        whole = parity(arguments, runs, part) and whole
    memory_after = nvidia_smi("memory.used")
    if memory_before is not None and memory_after is not None:
        record(arguments, step_of(part), case="memory left on the GPU", mib=memory_after - memory_before, right=memory_after - memory_before < 200)
    return whole
