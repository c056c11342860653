#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A rank of a job whose ranks share one GPU and communicate over NCCL: `mpirun -n N one_gpu_rank.sh PROGRAM ARGUMENT...`. With a distinct
# NCCL_HOSTID each rank counts as a node, and NCCL sends over sockets. For tests: a collective takes milliseconds. Variables that are set
# already stay unchanged, NCCL_HOSTID too.
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-}}}
ranks=${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-${SLURM_NTASKS:-1}}}
[[ -n $rank ]] || { echo "one_gpu_rank.sh: no rank: start it under mpirun or srun" >&2; exit 2; }
export NCCL_HOSTID=${NCCL_HOSTID-one-gpu-$rank}
export NCCL_NET=${NCCL_NET-Socket} NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME-lo} NCCL_SOCKET_FAMILY=${NCCL_SOCKET_FAMILY-AF_INET}
export NCCL_MNNVL_ENABLE=${NCCL_MNNVL_ENABLE-0} NCCL_DEBUG=${NCCL_DEBUG-WARN}
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS-32}
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF-expandable_segments:True}
export OMP_NUM_THREADS=${OMP_NUM_THREADS-2}
# From three ranks on the algorithms for one rank a node (PAT) take many more hops.
[[ $ranks -lt 3 ]] || export NCCL_ALGO=${NCCL_ALGO-Ring} NCCL_PROTO=${NCCL_PROTO-Simple}
for name in NCCL_ALGO NCCL_PROTO; do [[ -n ${!name:-} ]] || unset "$name"; done  # set to nothing: NCCL's own choice
# A rank without an id, or with another rank's: tests of the error message.
[[ -z ${ONE_GPU_WITHOUT_ID:-} || $rank -ne $ONE_GPU_WITHOUT_ID ]] || unset NCCL_HOSTID
exec "$@"
