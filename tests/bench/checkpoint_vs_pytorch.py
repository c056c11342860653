#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trireme's checkpoints beside PyTorch's distributed checkpoint: 2 GB by 2 ranks, on the disk below the working directory.

    checkpoint_vs_pytorch.py --bench build/checkpoint_bench

Both are measured against plain sequential writing with fsync and plain cold reading of as many bytes, in turns in their
own runs, so that only the ratios are compared. PyTorch comes from the environment that step_vs_pytorch/compare.py makes
(${TRIREME_CACHE:-~/.cache/trireme}/peer-torch-2.11.0)."""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

DIRECTORY = pathlib.Path("checkpoint-bench-pytorch")
ROUNDS, TENSORS, BYTES = 5, 48, 2_016_000_000
PIECE = 4 << 20


def forget(directory):
    """Takes the pages of all files out of memory."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def peer():
    """One rank of PyTorch: the parameters and both moments as tensors sharded on their first axis."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    columns = 1024
    rows = BYTES // 4 // columns // TENSORS
    state = {f"t{i}": distribute_tensor(torch.rand(rows, columns), mesh, [Shard(0)]) for i in range(TENSORS)}
    local = [value.to_local() for value in state.values()]
    mine = DIRECTORY / f"plain-{rank}"

    def timed(call):
        dist.barrier()
        begin = time.perf_counter()
        call()
        seconds = torch.tensor(time.perf_counter() - begin)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds)

    def empty():
        dist.barrier()
        if rank == 0:
            shutil.rmtree(DIRECTORY, ignore_errors=True)
            DIRECTORY.mkdir()
        dist.barrier()

    def write_plain():
        with open(mine, "wb", buffering=0) as file:
            for tensor in local:
                view = memoryview(tensor.numpy()).cast("B")
                for at in range(0, len(view), PIECE):
                    file.write(view[at : at + PIECE])
            os.fsync(file.fileno())

    def read_plain():
        with open(mine, "rb", buffering=0) as file:
            for tensor in local:
                view = memoryview(tensor.numpy()).cast("B")
                for at in range(0, len(view), PIECE):
                    file.readinto(view[at : at + PIECE])

    saves, writes, loads, reads = [], [], [], []

    def row(seconds, call):
        """Several in a row; the first is not counted, as in checkpoint_bench."""
        for i in range(4):
            empty()
            took = timed(call)
            if i > 0:
                seconds.append(took)

    for turn in range(ROUNDS):
        kinds = [(saves, lambda: dcp.save(state, checkpoint_id=str(DIRECTORY / "step"))), (writes, write_plain)]
        for seconds, call in kinds if turn % 2 == 0 else reversed(kinds):
            row(seconds, call)
    empty()
    dcp.save(state, checkpoint_id=str(DIRECTORY / "step"))
    write_plain()
    for _ in range(ROUNDS):
        for call, seconds in ((read_plain, reads), (lambda: dcp.load(state, checkpoint_id=str(DIRECTORY / "step")), loads)):
            dist.barrier()
            if rank == 0:
                forget(DIRECTORY)
            seconds.append(timed(call))
    empty()
    if rank == 0:
        shutil.rmtree(DIRECTORY)
        for name, ours, plain in (("saving", saves, writes), ("cold_load", loads, reads)):
            rate = BYTES / statistics.median(ours) / 1e9
            ratio = statistics.median(plain) / statistics.median(ours)
            print(f"pytorch  {name:10} GBps={rate:.3f} plain_GBps={rate / ratio:.3f} ratio={ratio:.3f} "
                  f"ratio_best={min(plain) / min(ours):.3f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", help="the built checkpoint_bench")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none", help="the MPI launcher")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        return peer()
    if arguments.bench is None:
        parser.error("--bench is required")
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    subprocess.run([*arguments.mpirun.split(), "-n", "2", arguments.bench], check=True, env=environment)
    cache = pathlib.Path(os.environ.get("TRIREME_CACHE", pathlib.Path.home() / ".cache" / "trireme"))
    python = cache / "peer-torch-2.11.0" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{python} is not there: run tests/bench/step_vs_pytorch/compare.py first, it makes it")
    subprocess.run([python, "-m", "torch.distributed.run", "--nproc-per-node=2", __file__, "--peer"], check=True, env=environment)


if __name__ == "__main__":
    main()
