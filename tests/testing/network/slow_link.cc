// A cable between two network namespaces that is as slow as it is told: each gets a TUN device, and
// what one sends comes to the other later. What netem does, where a kernel is without.
//   slow_link DEVICE NAMESPACE NAMESPACE DELAY_US GBITS
// DEVICE is the devices' name. It says "ready" once they are there, and works until it ends; the
// devices end with it. Stopped (SIGSTOP) it is a cable that is cut.
//
// A packet leaves when all before it have left at the given rate, and arrives DELAY_US later.
// Packets are those of TCP's segmentation offload, up to 64 KiB, as between a real machine and its
// network card; the headers that the card would give each of its segments are counted.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr size_t kMostBytes = (size_t{64} << 10) + 256;
// What TCP and IPv4 put before each segment (with time stamps), and Ethernet around it.
constexpr double kSegmentHeaders = 20 + 32, kFrameBytes = 14 + 4 + 8 + 12;
// What is queued beyond this is lost.
constexpr size_t kMostPackets = 20'000;
// The last moment before a packet is due is not slept through: to be woken takes about as long.
constexpr nanoseconds kWakes{15'000};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "slow_link: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int open_device(const char* device, const char* network) {
  const int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open((std::string("/run/netns/") + network).c_str(), O_RDONLY | O_CLOEXEC);
  if (here < 0 || there < 0) fail(network);
  if (setns(there, CLONE_NEWNET) != 0) fail("entering a namespace");
  const int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) fail("/dev/net/tun");
  ifreq request = {};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(file, TUNSETIFF, &request) != 0) fail(device);
  if (ioctl(file, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0) fail("segmentation offload");
  if (setns(here, CLONE_NEWNET) != 0) fail("leaving a namespace");
  close(here);
  close(there);
  return file;
}

// virtio_net_hdr, which stands before each packet; its header is not for C++.
struct OffloadHeader {
  uint8_t flags = 0, segmented = 0;
  uint16_t header_bytes = 0, segment_bytes = 0, checksum_start = 0, checksum_offset = 0;
};

struct Packet {
  Clock::time_point due;
  size_t size = 0;
  std::unique_ptr<std::array<char, kMostBytes>> bytes;
};

// What goes from one end to the other.
class Way {
 public:
  Way(int from, int to, nanoseconds delay, double bits_per_ns)
      : from_(from), to_(to), delay_(delay), bits_per_ns_(bits_per_ns) {}

  // One packet at most, so that both ways and what is due have their turns.
  bool take() {
    Packet packet;
    if (spare_.empty()) {
      packet.bytes = std::make_unique<std::array<char, kMostBytes>>();
    } else {
      packet.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    const ssize_t got = read(from_, packet.bytes->data(), kMostBytes);
    if (got < 0 && errno != EAGAIN && errno != EINTR) fail("reading");
    if (got <= 0 || packets_.size() == kMostPackets) {
      spare_.push_back(std::move(packet.bytes));
      return got > 0;
    }
    packet.size = static_cast<size_t>(got);
    const nanoseconds on_wire(static_cast<int64_t>(8.0 * bytes_on_wire(packet) / bits_per_ns_));
    free_ = std::max(free_, Clock::now()) + on_wire;
    packet.due = free_ + delay_;
    packets_.push_back(std::move(packet));
    return true;
  }

  bool give() {
    if (packets_.empty() || packets_.front().due > Clock::now()) return false;
    Packet& packet = packets_.front();
    // A device that is down loses what comes.
    if (write(to_, packet.bytes->data(), packet.size) < 0 && errno != EIO && errno != EAGAIN)
      fail("writing");
    spare_.push_back(std::move(packet.bytes));
    packets_.pop_front();
    return true;
  }

  Clock::time_point due() const {
    return packets_.empty() ? Clock::time_point::max() : packets_.front().due;
  }

 private:
  static double bytes_on_wire(const Packet& packet) {
    OffloadHeader header;
    std::memcpy(&header, packet.bytes->data(), sizeof header);
    const auto size = static_cast<double>(packet.size - sizeof header);
    if (header.segmented == 0 || header.segment_bytes == 0) return size + kFrameBytes;
    const double segments = std::max(1.0, size / (header.segment_bytes + kSegmentHeaders));
    return size + (segments - 1.0) * kSegmentHeaders + segments * kFrameBytes;
  }

  int from_, to_;
  nanoseconds delay_;
  double bits_per_ns_;
  Clock::time_point free_;  // when all that was taken will have left
  std::deque<Packet> packets_;
  std::vector<std::unique_ptr<std::array<char, kMostBytes>>> spare_;
};

void forward(std::array<int, 2> files, nanoseconds delay, double gbits) {
  std::array<Way, 2> ways = {Way(files[0], files[1], delay, gbits),
                             Way(files[1], files[0], delay, gbits)};
  std::array<pollfd, 2> waits = {pollfd{files[0], POLLIN, 0}, pollfd{files[1], POLLIN, 0}};
  for (;;) {
    bool worked = false;
    for (Way& way : ways) {
      worked |= way.give();
      worked |= way.take();
    }
    if (worked) continue;
    const Clock::time_point due = std::min(ways[0].due(), ways[1].due());
    const bool idle = due == Clock::time_point::max();
    const nanoseconds left = idle ? nanoseconds{0} : due - Clock::now() - kWakes;
    if (!idle && left.count() <= 0) continue;
    const timespec time = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    if (ppoll(waits.data(), waits.size(), idle ? nullptr : &time, nullptr) < 0 && errno != EINTR)
      fail("waiting");
  }
}

}  // namespace

int main(int count, char** words) {
  const double delay_us = count == 6 ? std::atof(words[4]) : -1.0;
  const double gbits = count == 6 ? std::atof(words[5]) : 0.0;
  if (!(delay_us >= 0.0 && delay_us <= 1e7 && gbits > 0.0)) {
    std::fprintf(stderr, "usage: slow_link DEVICE NAMESPACE NAMESPACE DELAY_US GBITS\n");
    return 2;
  }
  // It ends with whoever started it, and goes before what computes.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const sched_param priority = {.sched_priority = 10};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
    std::fprintf(stderr, "slow_link: without priority it may be late: %s\n", std::strerror(errno));
  const std::array<int, 2> files = {open_device(words[1], words[2]),
                                    open_device(words[1], words[3])};
  std::printf("ready\n");
  std::fflush(stdout);
  forward(files, nanoseconds(static_cast<int64_t>(delay_us * 1e3)), gbits);
}
