// Products of groups of warps, and barriers that count (simt.h). Asynchronous work is done as early
// and seen as late as can be: results are there after the wait, and what is under way may not be
// touched until then.
#include <algorithm>
#include <cstring>

#include "kernels/simt/emulated_threads.h"
#include "kernels/simt/emulator.h"
#include "kernels/simt/sanitizers.h"

namespace simt {
namespace {

constexpr uint32_t kBarrierMark = 0x51b1e55au;  // of a Barrier that was begun
constexpr uint32_t kUnreadable = 0xffffffffu;

// A group's operand of rows, 16 of k each, as the processor is told of it.
struct Operand {
  size_t start, group_stride;
  unsigned swizzle;
};
Operand decoded(uint64_t operand) {
  return {static_cast<size_t>(operand & 0x3fff) << 4,
          static_cast<size_t>(operand >> 32 & 0x3fff) << 4, static_cast<unsigned>(operand >> 62)};
}

// The 8 bytes of row `row` from k = 4 * quarter on: 128 bytes a row, 8 rows side by side; of an
// address bits 4 to 6 are turned by bits 7 to 9.
const unsigned char* place_of(const Operand& o, int row, int quarter) {
  size_t at = o.start + static_cast<size_t>(row / 8) * o.group_stride +
              static_cast<size_t>(row % 8) * 128 + static_cast<size_t>(quarter) * 8;
  at ^= (at >> 7 & 7) << 4;
  if (at + 8 > here.shared_bytes) fail("a group's operand lies outside of the shared memory");
  return here.shared + at;
}

void read_rows(uint64_t operand, int tiles, uint16_t (*rows)[16]) {
  const Operand o = decoded(operand);
  if (o.swizzle != 1) fail("a group's operand is not of rows of 128 bytes");
  for (int row = 0; row < tiles * 8; ++row) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      std::memcpy(&rows[row][quarter * 4], place_of(o, row, quarter), 8);
    }
  }
}

// What a lane brings.
struct Part {
  float* d;
  const uint32_t* a;
  int tiles;
  uint64_t operand;
  bool adds;
};

// What the lane's sums will be after the products under way; nullptr: what they are.
const float* coming(GroupProducts& own, const float* d) {
  for (unsigned i = own.begun; i > own.ended; --i) {
    const GroupProduct& p = own.at(i - 1);
    for (int lane = 0; lane < 32; ++lane) {
      if (p.d[lane] == d) return p.result[lane];
    }
  }
  return nullptr;
}

void compute(GroupProduct& p) {
  for (int tile = 0; tile < p.tiles; ++tile) {
    MmaLane lanes[32];
    const MmaLane* all[32];
    uint32_t b[32][2];
    for (int lane = 0; lane < 32; ++lane) {
      const uint16_t* row = p.rows[tile * 8 + lane / 4];
      std::memcpy(&b[lane][0], row + lane % 4 * 2, 4);
      std::memcpy(&b[lane][1], row + lane % 4 * 2 + 8, 4);
      lanes[lane] = {p.result[lane] + tile * 4, p.weights[lane], b[lane]};
      all[lane] = &lanes[lane];
    }
    warp_mma(all, false, tensor_cores());
  }
}

void begin_product(const void* const* parts) {
  const Unwatched unwatched;
  GroupProducts& own = group_products();
  const Part& first = *static_cast<const Part*>(parts[0]);
  if (!own.fenced) fail("a group's product without a group_fence before it");
  if (own.products.empty()) own.products.resize(GroupProducts::kMost);
  if (own.begun - own.ended == GroupProducts::kMost) fail("too many products of a group under way");
  GroupProduct& p = own.at(own.begun);
  p.tiles = first.tiles, p.committed = false, p.operand = first.operand;
  const size_t bytes = sizeof(float) * 4 * static_cast<size_t>(p.tiles);
  for (int lane = 0; lane < 32; ++lane) {
    const Part& part = *static_cast<const Part*>(parts[lane]);
    if (part.operand != first.operand || part.adds != first.adds) {
      fail("lanes of a warp bring different operands");
    }
    p.d[lane] = part.d, p.a[lane] = part.a;
    std::memcpy(p.weights[lane], part.a, sizeof p.weights[lane]);
    const float* before = coming(own, part.d);
    if (first.adds) {
      std::memcpy(p.result[lane], before != nullptr ? before : part.d, bytes);
    } else {
      std::memset(p.result[lane], 0, bytes);
    }
    std::memset(part.d, 0xff, bytes);
  }
  read_rows(first.operand, p.tiles, p.rows);
  compute(p);
  ++own.begun;
  own.asked = (own.asked ^ first.operand ^ static_cast<uint64_t>(p.tiles) << 50 ^
               static_cast<uint64_t>(first.adds) << 49) *
              1099511628211ull;
}

void end_product(GroupProduct& p, bool is_last_of_sums) {
  uint16_t rows[GroupProduct::kMostTiles * 8][16];
  read_rows(p.operand, p.tiles, rows);
  if (std::memcmp(rows, p.rows, sizeof p.rows[0] * static_cast<size_t>(p.tiles) * 8) != 0) {
    fail("a group's operand was changed while the product was under way");
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (std::memcmp(p.a[lane], p.weights[lane], sizeof p.weights[lane]) != 0) {
      fail("a group's weights were changed while the product was under way");
    }
    for (int i = 0; i < p.tiles * 4; ++i) {
      uint32_t bits;
      std::memcpy(&bits, p.d[lane] + i, 4);
      if (bits != kUnreadable) fail("a group's sums were changed while the product was under way");
    }
    if (!is_last_of_sums) continue;
    std::memcpy(p.d[lane], p.result[lane], sizeof(float) * 4 * static_cast<size_t>(p.tiles));
  }
}

// Whether a later product adds to the sums of this one.
bool goes_on(GroupProducts& own, unsigned index) {
  for (unsigned i = index + 1; i < own.begun; ++i) {
    if (own.at(i).d[0] == own.at(index).d[0]) return true;
  }
  return false;
}

void end_phase(Barrier& barrier) {
  barrier.left = barrier.count;
  barrier.phase ^= 1;
}

// What the barrier's phase waits for, if all of it is under way.
bool do_copies(Barrier& barrier) {
  const Unwatched unwatched;
  std::vector<BlockCopy>& copies = block_copies();
  const auto is_own = [&](const BlockCopy& copy) { return copy.barrier == &barrier; };
  int64_t bytes = 0;
  for (const BlockCopy& copy : copies) bytes += is_own(copy) ? static_cast<int64_t>(copy.bytes) : 0;
  if (bytes > barrier.bytes) fail("a Barrier expects fewer bytes than are copied");
  if (bytes < barrier.bytes) return false;
  for (const BlockCopy& copy : copies) {
    if (is_own(copy)) std::memcpy(copy.to, copy.from, copy.bytes);
  }
  copies.erase(std::remove_if(copies.begin(), copies.end(), is_own), copies.end());
  barrier.bytes = 0;
  return true;
}

enum class Mark : uint8_t { kFence, kCommit, kWait };

void mark(Mark what, int left) {
  if (meet_warp(State::kGroupMark, nullptr) == nullptr) return;
  const Unwatched unwatched;
  GroupProducts& own = group_products();
  if (what == Mark::kFence) own.fenced = true;
  if (what == Mark::kCommit) {
    own.fenced = false;
    // Products of one group of a commit end together: the last one of them has the mark.
    if (own.begun != own.ended) own.at(own.begun - 1).committed = true;
  }
  if (what == Mark::kWait) {
    int groups = 0;
    for (unsigned i = own.ended; i < own.begun; ++i) groups += own.at(i).committed ? 1 : 0;
    for (; groups > left; --groups) {
      for (bool more = true; more; ++own.ended) {
        end_product(own.at(own.ended), !goes_on(own, own.ended));
        more = !own.at(own.ended).committed;
      }
    }
  }
  wake_warp();
}

}  // namespace

void GroupProducts::clear() {
  begun = ended = 0;
  fenced = false;
  asked = 0;
}

void GroupProducts::check_ended() const {
  if (begun != ended) fail("a thread returns with products of its group that it did not wait for");
}

void barrier_begin(Barrier& barrier, int count) {
  barrier = {kBarrierMark, static_cast<uint32_t>(count), static_cast<uint32_t>(count), 0, 0};
}

void barrier_arrive(Barrier& barrier) {
  barrier_expect(barrier, 0);
}

void barrier_expect(Barrier& barrier, int bytes) {
  if (barrier.mark != kBarrierMark) fail("a Barrier was not begun");
  if (barrier.left == 0) fail("too many arrive at a Barrier");
  release(&barrier);
  barrier.bytes += bytes;
  if (--barrier.left != 0) return;
  if (barrier.bytes == 0) end_phase(barrier);
  wake(&barrier);
}

void barrier_wait(Barrier& barrier, int parity) {
  if (barrier.mark != kBarrierMark) fail("a Barrier was not begun");
  while (barrier.phase == static_cast<uint32_t>(parity)) {
    if (barrier.left == 0 && do_copies(barrier)) {
      end_phase(barrier);
      wake(&barrier);
    } else {
      wait_at(&barrier);
    }
  }
  acquire(&barrier);
}

void copy_block(void* to, const void* from, int bytes, Barrier& barrier) {
  auto* at = static_cast<unsigned char*>(to);
  const auto size = static_cast<size_t>(bytes);
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 ||
      bytes % 16 != 0) {
    fail("copy_block is not aligned");
  }
  if (at < here.shared || at + size > here.shared + here.shared_bytes) {
    fail("copy_block goes outside of the shared memory");
  }
  const Unwatched unwatched;
  std::memset(at, 0xff, size);
  block_copies().push_back({at, from, size, &barrier});
  wake(&barrier);
}

uint64_t operand_of(const void* rows) {
  const auto at = static_cast<uint64_t>(static_cast<const unsigned char*>(rows) - here.shared);
  if (at % 1024 != 0) fail("a group's operand does not begin at a multiple of 1024 bytes");
  return at >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}

void group_product(int tiles, float* d, const uint32_t* a, uint64_t operand, bool adds) {
  const Part part = {d, a, tiles, operand, adds};
  const void* const* parts = meet_warp(State::kGroupProduct, &part);
  if (parts == nullptr) return;
  begin_product(parts);
  wake_warp();
}

void group_fence() {
  mark(Mark::kFence, 0);
}
void group_commit() {
  mark(Mark::kCommit, 0);
}
void group_wait_for(int left) {
  mark(Mark::kWait, left);
}

}  // namespace simt
