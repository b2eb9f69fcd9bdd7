// Threads of kernels are not threads to this file: it is compiled without ThreadSanitizer's checks,
// and tells it by release() and acquire() what is ordered (sanitizers.h).
#include "kernels/simt/emulator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/simt/emulated_threads.h"
#include "kernels/simt/emulation.h"
#include "kernels/simt/fiber.h"
#include "kernels/simt/launches.h"
#include "kernels/simt/sanitizers.h"

namespace simt {

Here here;

namespace {

constexpr unsigned kMaxThreads = 1024, kLanes = 32, kMaxWarps = kMaxThreads / kLanes;

const char* text_of(State state) {
  switch (state) {
    case State::kReady:
      return "may go on";
    case State::kBarrier:
      return "wait at __syncthreads";
    case State::kSyncWarp:
      return "wait at __syncwarp";
    case State::kShuffle:
      return "wait at a shuffle";
    case State::kMmaBf16:
      return "wait at mma_bf16";
    case State::kMmaF16:
      return "wait at mma_f16";
    case State::kGroupProduct:
      return "wait at group_mma_bf16";
    case State::kGroupMark:
      return "wait at group_fence, group_commit or group_wait";
    case State::kPhase:
      return "wait for the phase of a Barrier";
    case State::kPrevious:
      return "wait for the previous launch";
    case State::kDone:
      return "have returned";
  }
  return "?";
}

// Copies of a thread that are under way, oldest first, and where its groups end. Both go round.
struct Copies {
  static constexpr unsigned kCopies = 1024, kGroups = 64;
  Copy copies[kCopies];
  unsigned ends[kGroups];
  unsigned begun = 0, ended = 0, groups = 0, groups_ended = 0;
};

struct Fiber {
  Context context;
  std::unique_ptr<Copies> copies;
  unsigned id = 0;
  uint3 index{};
  State state = State::kReady;
  const void* place = nullptr;  // where it waits
};

struct Exchange {
  uint32_t value, result;
  unsigned from;
};

struct Warp {
  uint32_t ready = 0;
  unsigned arrived = 0;
  State meeting = State::kReady;
  unsigned phase = 0;
  char tags[2];
  Exchange* exchanges[kLanes];
  const MmaLane* products[kLanes];
  const void* parts[kLanes];
  GroupProducts group;
};

// A launch under way.
struct Machine {
  Fiber fibers[kMaxThreads];
  Warp warps[kMaxWarps];
  uint32_t ready_warps = 0;
  Context caller;
  Stack stacks[2 * kMaxThreads];
  const Launch* begun = nullptr;  // one whose first block waits for the previous launch
  const Launch* launch = nullptr;
  std::vector<unsigned> blocks;  // in the order in which they run
  std::vector<unsigned char*> arenas;
  size_t arena_bytes = 0;  // of the last one
  size_t block = 0;        // of `blocks`, the one that runs
  Here place;
  unsigned threads = 0, at_barrier = 0, barriers = 0, waiting = 0, waited = 0, done = 0;
  bool early = false;
  bool last_arrived = false;
  std::vector<BlockCopy> block_copies;
  char begin_tag, end_tag, previous_tag, barrier_tags[2];
};

uint64_t order = 0, random_state = 1;
TensorCore tensor_core = kHopper;
long switch_count = 0;
Machine* machine = nullptr;
Fiber* now = nullptr;

uint64_t next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

unsigned pick_bit(uint32_t set) {
  if (order == 0) return static_cast<unsigned>(__builtin_ctz(set));
  if (order == 1) return 31 - static_cast<unsigned>(__builtin_clz(set));
  const auto turn = static_cast<unsigned>(next_random() >> 32 & 31);
  const uint32_t turned = set >> turn | set << (-turn & 31);
  return (static_cast<unsigned>(__builtin_ctz(turned)) + turn) & 31;
}

void set_ready(Machine& m, unsigned warp, uint32_t lanes) {
  m.warps[warp].ready |= lanes;
  m.ready_warps |= 1u << warp;
}

// What is to run next, as `now`; nullptr if there is nothing.
Context* next_context(Machine& m) {
  if (m.ready_warps == 0) {
    now = nullptr;
    return nullptr;
  }
  const unsigned warp = pick_bit(m.ready_warps);
  const unsigned lane = pick_bit(m.warps[warp].ready);
  now = &m.fibers[warp * kLanes + lane];
  here.thread = now->index;
  ++switch_count;
  return &now->context;
}

// The thread does not go on until somebody makes it ready.
void stop(State state) {
  Machine& m = *machine;
  Fiber& f = *now;
  f.state = state;
  Warp& warp = m.warps[f.id / kLanes];
  warp.ready &= ~(1u << f.id % kLanes);
  if (warp.ready == 0) m.ready_warps &= ~(1u << f.id / kLanes);
  Context* next = next_context(m);
  switch_fiber(f.context, next != nullptr ? *next : m.caller);
}

// Not ready while it takes part in a meeting that others have not come to; the last one to come
// makes all of them ready, itself included.
void wake_block(Machine& m) {
  for (unsigned i = 0; i < m.threads; ++i) m.fibers[i].state = State::kReady;
  for (unsigned w = 0; w < m.threads / kLanes; ++w) set_ready(m, w, 0xffffffffu);
}

// Whether the calling lane is the last one of its warp to come to a meeting.
bool comes_last(Warp& warp, State meeting) {
  if (warp.arrived != 0 && warp.meeting != meeting) {
    now->state = meeting;
    fail("lanes of a warp meet in different operations");
  }
  warp.meeting = meeting;
  return ++warp.arrived == kLanes;
}

void wake_warp(Machine& m, Warp& warp) {
  warp.arrived = 0;
  const unsigned first = now->id / kLanes * kLanes;
  for (unsigned i = first; i < first + kLanes; ++i) m.fibers[i].state = State::kReady;
  set_ready(m, first / kLanes, 0xffffffffu);
}

void end_thread() {
  const Copies* copies = now->copies.get();
  if (copies != nullptr && copies->begun != copies->ended) {
    fail("a thread returns with copies that it did not wait for");
  }
  group_products().check_ended();
  ++machine->done;
  release(&machine->end_tag);
  stop(State::kDone);
}

void run_thread() {
  fiber_started(now->context);
  acquire(&machine->begin_tag);
  machine->launch->thread();
  end_thread();
  std::abort();
}

void free_arenas(Machine& m) {
  for (unsigned char* arena : m.arenas) std::free(arena);
  m.arenas.clear();
}

// The shared memory of a block, which is NaNs. Blocks that the sanitizers watch have memory of
// their own, and for ThreadSanitizer it is kept until the launch ends.
unsigned char* new_arena(Machine& m, size_t bytes) {
  const size_t room = (bytes + 15) / 16 * 16 + 16;
  if (SIMT_TSAN == 0 && SIMT_ASAN == 0 && m.arena_bytes >= room) {
    std::memset(m.arenas.back(), 0xff, bytes);
    return m.arenas.back();
  }
  if (SIMT_TSAN == 0) free_arenas(m);
  auto* arena = static_cast<unsigned char*>(std::aligned_alloc(16, room));
  if (arena == nullptr) fail("no memory for the shared memory of a block");
  std::memset(arena, 0xff, bytes);
  poison(arena + bytes, room - bytes);
  m.arenas.push_back(arena);
  m.arena_bytes = room;
  return arena;
}

void start_block(Machine& m) {
  const Shape& shape = m.launch->shape;
  const unsigned index = m.blocks[m.block];
  unsigned char* arena = new_arena(m, shape.shared_bytes);
  m.place.grid = shape.grid;
  m.place.block_size = shape.block;
  m.place.block = {index % shape.grid.x, index / shape.grid.x % shape.grid.y,
                   index / shape.grid.x / shape.grid.y};
  m.place.shared = arena;
  m.place.shared_bytes = shape.shared_bytes;
  m.at_barrier = m.waiting = m.waited = m.done = 0;
  for (unsigned w = 0; w < m.threads / kLanes; ++w) {
    m.warps[w].arrived = 0;
    m.warps[w].group.clear();
  }
  m.block_copies.clear();
  for (unsigned i = 0; i < m.threads; ++i) {
    Fiber& f = m.fibers[i];
    f.id = i;
    f.index = {i % shape.block.x, i / shape.block.x % shape.block.y,
               i / shape.block.x / shape.block.y};
    // Two blocks' threads of one number are different ones to ThreadSanitizer.
    const size_t turn = SIMT_TSAN != 0 ? 37 * m.block : 0;
    prepare_fiber(f.context, m.stacks[(i + turn) % (2 * m.threads)], run_thread);
    if (f.copies != nullptr)
      f.copies->begun = f.copies->ended = f.copies->groups = f.copies->groups_ended = 0;
  }
  wake_block(m);
}

// Runs the threads that can run. Whether they have all returned; if not, they wait for the previous
// launch.
bool play_block(Machine& m) {
  machine = &m;
  here = m.place;
  prepare_caller(m.caller);
  Context* next = next_context(m);
  if (next != nullptr) switch_fiber(m.caller, *next);
  const bool ended = m.done == m.threads;
  if (!ended && m.waiting == 0) fail("threads wait for one another for ever");
  if (ended && m.launch->shape.dependent && m.waited == 0) {
    fail("a block of a dependent launch returns without wait_for_previous");
  }
  if (ended) {
    if (!m.block_copies.empty()) fail("a block returns with copy_blocks that it did not wait for");
    for (unsigned w = 0; w < m.threads / kLanes; ++w) {
      if (m.warps[w].group.asked != m.warps[w / 4 * 4].group.asked) {
        fail("the warps of a group ask for different products");
      }
    }
  }
  return ended;
}

// The first block of `launch`, up to where it waits for the launch before it.
void begin(Machine& m, const Launch& launch) {
  m.launch = m.begun = &launch;
  const Shape& shape = launch.shape;
  m.threads = shape.block.x * shape.block.y * shape.block.z;
  m.blocks.resize(size_t{shape.grid.x} * shape.grid.y * shape.grid.z);
  std::iota(m.blocks.begin(), m.blocks.end(), 0u);
  random_state = order * 0x9e3779b97f4a7c15u + 1;
  if (order == 1) std::reverse(m.blocks.begin(), m.blocks.end());
  if (order > 1) {
    for (size_t i = m.blocks.size(); i > 1; --i) {
      std::swap(m.blocks[i - 1], m.blocks[next_random() % i]);
    }
  }
  m.block = 0;
}

void begin_early(Machine& m, const Launch& launch) {
  begin(m, launch);
  m.early = true;
  start_block(m);
  release(&m.begin_tag);
  if (play_block(m)) ++m.block;
  m.early = false;
}

void finish(Machine& m) {
  m.begun = nullptr;
  if (m.waiting != 0) {
    release(&m.previous_tag);
    m.waiting = 0;
    // Those that wait at barriers or collectives for these go on waiting.
    for (unsigned i = 0; i < m.threads; ++i) {
      if (m.fibers[i].state != State::kPrevious) continue;
      m.fibers[i].state = State::kReady;
      set_ready(m, i / kLanes, 1u << i % kLanes);
    }
    play_block(m);
    ++m.block;
  }
  for (; m.block < m.blocks.size(); ++m.block) {
    start_block(m);
    release(&m.begin_tag);
    play_block(m);
  }
  acquire(&m.end_tag);
  if (SIMT_TSAN != 0) free_arenas(m);
  machine = nullptr;
}

Machine* machines() {
  static Machine* two = new Machine[2];  // also for what runs at the program's end
  return two;
}

}  // namespace

void run_launch(const Launch& launch, const Launch* next) {
  Machine* two = machines();
  const int own = two[1].begun == &launch ? 1 : two[0].begun == &launch ? 0 : -1;
  Machine& m = two[own == 1 ? 1 : 0];
  if (own < 0) begin(m, launch);
  m.begun = nullptr;
  if (next != nullptr) begin_early(two[own == 1 ? 0 : 1], *next);
  finish(m);
}

long switches() {
  return switch_count;
}
void set_order(uint64_t seed) {
  order = seed;
}
void set_tensor_core(const TensorCore& core) {
  tensor_core = core;
}

void fail(const char* what) {
  std::fprintf(stderr, "simt: %s", what);
  if (machine != nullptr) {
    const Machine& m = *machine;
    std::fprintf(stderr, "; block (%u,%u,%u)", here.block.x, here.block.y, here.block.z);
    if (now != nullptr) std::fprintf(stderr, ", thread %u", now->id);
    int shown = 0;
    for (unsigned i = 0; i < m.threads && shown < 6; ++i) {
      if (i > 0 && m.fibers[i - 1].state == m.fibers[i].state) continue;
      std::fprintf(stderr, "\n  threads from %u on %s", i, text_of(m.fibers[i].state));
      ++shown;
    }
  }
  std::fprintf(stderr, "\n");
  std::abort();
}

void sync_threads() {
  Machine& m = *machine;
  if (m.done != 0) fail("__syncthreads after threads have returned");
  char* tag = &m.barrier_tags[m.barriers & 1];
  release(tag);
  if (++m.at_barrier == m.threads) {
    m.at_barrier = 0;
    ++m.barriers;
    wake_block(m);
  } else {
    stop(State::kBarrier);
  }
  acquire(tag);
}

void sync_warp() {
  Machine& m = *machine;
  Warp& warp = m.warps[now->id / kLanes];
  char* tag = &warp.tags[warp.phase & 1];
  release(tag);
  if (comes_last(warp, State::kSyncWarp)) {
    ++warp.phase;
    wake_warp(m, warp);
  } else {
    stop(State::kSyncWarp);
  }
  acquire(tag);
}

uint32_t shuffle_bits(uint32_t value, int lane) {
  Machine& m = *machine;
  Warp& warp = m.warps[now->id / kLanes];
  Exchange exchange{value, 0, static_cast<unsigned>(lane) % kLanes};
  warp.exchanges[now->id % kLanes] = &exchange;
  if (comes_last(warp, State::kShuffle)) {
    for (Exchange* one : warp.exchanges) one->result = warp.exchanges[one->from]->value;
    wake_warp(m, warp);
  } else {
    stop(State::kShuffle);
  }
  return exchange.result;
}

void mma(bool binary16, float* d, const uint32_t* a, const uint32_t* b) {
  Machine& m = *machine;
  Warp& warp = m.warps[now->id / kLanes];
  const MmaLane lane{d, a, b};
  warp.products[now->id % kLanes] = &lane;
  const State meeting = binary16 ? State::kMmaF16 : State::kMmaBf16;
  if (comes_last(warp, meeting)) {
    warp_mma(warp.products, binary16, tensor_core);
    wake_warp(m, warp);
  } else {
    stop(meeting);
  }
}

GroupProducts& group_products() {
  return machine->warps[now->id / kLanes].group;
}

std::vector<BlockCopy>& block_copies() {
  return machine->block_copies;
}

const void* const* meet_warp(State meeting, const void* part) {
  Warp& warp = machine->warps[now->id / kLanes];
  warp.parts[now->id % kLanes] = part;
  if (comes_last(warp, meeting)) return warp.parts;
  stop(meeting);
  return nullptr;
}

void wake_warp() {
  wake_warp(*machine, machine->warps[now->id / kLanes]);
}

void wait_at(const void* place) {
  now->place = place;
  stop(State::kPhase);
}

void wake(const void* place) {
  Machine& m = *machine;
  for (unsigned i = 0; i < m.threads; ++i) {
    if (m.fibers[i].state != State::kPhase || m.fibers[i].place != place) continue;
    m.fibers[i].state = State::kReady;
    set_ready(m, i / kLanes, 1u << i % kLanes);
  }
}

const TensorCore& tensor_cores() {
  return tensor_core;
}

bool arrive_last(unsigned* counter, unsigned count) {
  Machine& m = *machine;
  sync_threads();
  if (now->id == 0) {
    release(counter);
    m.last_arrived = *counter + 1 >= count;
    *counter = m.last_arrived ? 0 : *counter + 1;
    if (m.last_arrived) acquire(counter);
  }
  sync_threads();
  return m.last_arrived;
}

void wait_for_previous() {
  Machine& m = *machine;
  ++m.waited;
  if (!m.early) return;
  ++m.waiting;
  stop(State::kPrevious);
  acquire(&m.previous_tag);
}

void note_copy(const Copy& copy) {
  const auto to = reinterpret_cast<uintptr_t>(copy.to);
  const auto arena = reinterpret_cast<uintptr_t>(here.shared);
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(copy.from) % 16 != 0) {
    fail("copy_async16 is not aligned");
  }
  if (to < arena || to + 16 > arena + here.shared_bytes) {
    fail("copy_async16 goes outside of the shared memory");
  }
  if (now->copies == nullptr) now->copies.reset(new Copies);
  Copies& c = *now->copies;
  if (c.begun - c.ended == Copies::kCopies) fail("too many copies under way");
  c.copies[c.begun++ % Copies::kCopies] = copy;
}

void copy_commit() {
  if (now->copies == nullptr) now->copies.reset(new Copies);
  Copies& c = *now->copies;
  if (c.groups - c.groups_ended == Copies::kGroups) fail("too many groups of copies under way");
  c.ends[c.groups++ % Copies::kGroups] = c.begun;
}

bool next_copy(int left, Copy& copy) {
  if (now->copies == nullptr) return false;
  Copies& c = *now->copies;
  while (c.groups - c.groups_ended > static_cast<unsigned>(left)) {
    if (c.ended != c.ends[c.groups_ended % Copies::kGroups]) {
      copy = c.copies[c.ended++ % Copies::kCopies];
      return true;
    }
    ++c.groups_ended;
  }
  return false;
}

}  // namespace simt
