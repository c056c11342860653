// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

/// The part of NCCL that src/comm/cuda uses, between the simulated GPUs of processes on one node (nccl.cpp). A
/// collective runs on a separate thread, and the communicator is in progress until ncclCommGetAsyncError, called by the
/// launching thread, has joined it, as in NCCL with nonblocking communicators. In addition it ends the process if a
/// second thread uses the communicator in the meantime. Like NCCL it rejects ranks with the same GPU and host id
/// (NCCL_HOSTID, else the host's name). If a neighbour in rank order has ended or aborted, a rank that waits for it
/// gets ncclRemoteError, as over sockets; with TRIREME_SIMULATED_NCCL=silent nothing, as within a node.
///
/// On a concurrent device (engine.hpp) a collective is pending after its launch and runs on a separate thread when its
/// stream has reached it. Otherwise it is complete when the launch returns.
using cudaStream_t = void*;
struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow;
using ncclWindow_t = ncclWindow*;
enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclInt8 = 0, ncclFloat32 = 7, ncclBfloat16 = 9 };
enum ncclRedOp_t { ncclSum = 0 };
struct ncclUniqueId {
  std::array<char, 128> name;
};
struct ncclConfig_t {
  int blocking = 1, splitShare = 0, maxCTAs = 0, CTAPolicy = 0;
};
#define NCCL_CTA_POLICY_ZERO 2
#define NCCL_CONFIG_INITIALIZER \
  {}

#define NCCL_VERSION(major, minor, patch) (10000 * (major) + 100 * (minor) + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 28, 0)

#define NCCL_WIN_COLL_SYMMETRIC 1

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes);
ncclResult_t ncclMemFree(void* memory);
/// `window` is set when the launch has ended; an error if the ranks' sizes differ or memory is not ncclMemAlloc's.
ncclResult_t ncclCommWindowRegister(ncclComm_t over, void* memory, std::size_t bytes, ncclWindow_t* window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t over, ncclWindow_t window);
/// How many gathers, exchanges and reductions to one rank read and wrote windows of their communicator only, and how
/// many did not (all of this process), for tests; left: windows that their communicator still had at its end; registered:
/// all that were.
struct NcclWindowUse {
  int inside = 0, outside = 0, left = 0, registered = 0;
};
NcclWindowUse ncclWindowUse();

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
/// One id for a few ranks each, the same ones on every rank; at most as many as ranks.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int ranks, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config);
/// `made` is set, and `first` in progress, until the split has ended. Among all ranks of `first`: colour 0.
ncclResult_t ncclCommSplit(ncclComm_t first, int colour, int key, ncclComm_t* made, ncclConfig_t* config);
/// How many were made by a split (all of this process), for tests.
int ncclSplits();
/// maxCTAs of the communicators that were made (of this process, in order), and their CTAPolicy, for tests.
std::vector<int> ncclMaxCtas();
std::vector<int> ncclCtaPolicies();
/// How often a communicator was found in progress (all of this process), for tests.
int ncclTimesInProgress();
ncclResult_t ncclCommGetAsyncError(ncclComm_t of, ncclResult_t* state);
ncclResult_t ncclCommAbort(ncclComm_t of);
ncclResult_t ncclCommFinalize(ncclComm_t of);
ncclResult_t ncclCommDestroy(ncclComm_t of);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t of);

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t over,
                           cudaStream_t on);
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t sum,
                               ncclComm_t over, cudaStream_t on);
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t sum,
                           ncclComm_t over, cudaStream_t on);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t over, cudaStream_t on);
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t over,
                      cudaStream_t on);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t over, cudaStream_t on);
ncclResult_t ncclAlltoAll(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t over,
                          cudaStream_t on);
ncclResult_t ncclGroupStart();
/// After an error within the group: that error, and nothing is launched.
ncclResult_t ncclGroupEnd();
ncclResult_t ncclGetVersion(int* version);

/// For tests. The next ncclSend fails with `result`.
void ncclFailNextSend(ncclResult_t result);
/// Destroying and aborting do not return while it holds.
void ncclHoldEnds(bool holds);
/// Splits do not end while it holds.
void ncclHoldSplits(bool holds);
/// Called on NCCL's thread whenever a communicator is initialized.
void ncclAtInit(std::function<void()> call);
/// How many communicators this process aborted, and how many aborts were only queued, in a group that was open.
int ncclAborts();
int ncclQueuedAborts();
/// How many collectives were pending when another one was launched (all of this process).
int ncclPendingAtLaunches();
