#include "parallel/mpi/mpi_group.h"

// Without the C++ bindings of old.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace aerie {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMessageTag = 1, kAnswerTag = 2, kPartTag = 3, kPulseTag = 4;
constexpr auto kPulse = milliseconds(250);
constexpr auto kPatience = milliseconds(4000);

// What a rank says of itself, in memory that stays until it has been sent.
enum Pulse : char { kAlive, kLeaves };
constexpr std::array<Pulse, 2> kPulses = {kAlive, kLeaves};

// Waits, in steps that grow with what was waited for already: the first moments cost a core, since
// what comes in a pass comes soon, unless the network is slow.
class Patience {
 public:
  bool over(Clock::duration time) const { return Clock::now() - begin_ > time; }

  void wait() {
    if (++steps_ < 4000) return;
    std::this_thread::yield();
    const auto waited = Clock::now() - begin_;
    if (waited > milliseconds(100))
      std::this_thread::sleep_for(milliseconds(1));
    else if (waited > milliseconds(5))
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  int steps_ = 0;
  Clock::time_point begin_ = Clock::now();
};

// Over TCP, longer messages than this are announced and sent once the other has asked for them,
// which takes three times the network's latency; Open MPI's own limit is 64 KiB, which eight rows
// reach. It keeps buffers of that size, of which the system gives what is written to.
constexpr const char* kEagerVariable = "OMPI_MCA_btl_tcp_eager_limit";
constexpr const char* kEagerBytes = "4194304";

class MpiGroup final : public Group {
 public:
  MpiGroup();
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int rank) const override { return names_[static_cast<size_t>(rank)]; }
  int neighbours() const override { return neighbours_; }
  void tell(std::span<const std::byte> message) override;
  void listen(std::vector<std::byte>& message) override;
  void answer(std::span<const std::byte> message) override;
  std::vector<std::vector<std::byte>> collect() override;
  void all_gather(std::span<const std::span<std::byte>> parts) override;

 private:
  MPI_Request& next_request();
  void send(int rank, int tag, std::span<const std::byte> bytes);
  void receive(int rank, int tag, std::vector<std::byte>& bytes);
  void finish_requests();
  void learn_names();
  void watch_others();
  void hear();
  void say(Pulse pulse);
  bool all_left() const;
  void miss_silent_ones(Clock::time_point now);
  [[noreturn]] void give_up(int rank, const char* what);

  int rank_ = 0, size_ = 1, neighbours_ = 0;
  std::vector<std::string> names_;
  std::vector<MPI_Request> requests_;

  std::mutex mpi_;  // its calls come from one thread at a time
  // Of the thread that watches.
  std::vector<Clock::time_point> heard_;
  std::vector<char> left_;
  bool leaving_ = false;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ends_ = false;
  std::atomic<bool> leader_left_{false};
  std::thread watch_;
};

MpiGroup::MpiGroup() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  learn_names();
  heard_.assign(static_cast<size_t>(size_), Clock::now());
  left_.assign(static_cast<size_t>(size_), 0);
  if (size_ > 1) watch_ = std::thread([this] { watch_others(); });
}

MpiGroup::~MpiGroup() {
  if (watch_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    end_.notify_one();
    // All have to come to the end, and whoever does not is missed until then.
    watch_.join();
  }
  MPI_Finalize();
}

void MpiGroup::learn_names() {
  struct Process {
    std::array<char, 200> host = {};
    int id = 0;
  };
  Process own;
  gethostname(own.host.data(), own.host.size() - 1);
  own.id = static_cast<int>(getpid());
  std::vector<Process> all(static_cast<size_t>(size_));
  MPI_Allgather(&own, sizeof(Process), MPI_BYTE, all.data(), sizeof(Process), MPI_BYTE,
                MPI_COMM_WORLD);
  for (const Process& one : all) {
    names_.push_back("rank " + std::to_string(names_.size()) + " (" + one.host.data() +
                     ", process " + std::to_string(one.id) + ")");
    if (one.host == own.host) ++neighbours_;
  }
}

MPI_Request& MpiGroup::next_request() {
  return requests_.emplace_back(MPI_REQUEST_NULL);
}

void MpiGroup::send(int rank, int tag, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mpi_);
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, rank, tag, MPI_COMM_WORLD,
            &next_request());
}

void MpiGroup::finish_requests() {
  Patience patience;
  for (;;) {
    int done = 0;
    {
      const std::lock_guard lock(mpi_);
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    }
    if (done != 0) break;
    // Of a pass that the leader will not finish.
    if (leader_left_ && patience.over(kPatience)) give_up(0, "has ended within a pass");
    patience.wait();
  }
  requests_.clear();
}

void MpiGroup::receive(int rank, int tag, std::vector<std::byte>& bytes) {
  Patience patience;
  for (;;) {
    // What was sent before arrives before.
    const bool last = leader_left_;
    {
      const std::lock_guard lock(mpi_);
      int there = 0, count = 0;
      MPI_Status status;
      MPI_Iprobe(rank, tag, MPI_COMM_WORLD, &there, &status);
      if (there != 0) {
        MPI_Get_count(&status, MPI_BYTE, &count);
        bytes.resize(static_cast<size_t>(count));
        MPI_Irecv(bytes.data(), count, MPI_BYTE, rank, tag, MPI_COMM_WORLD, &next_request());
        break;
      }
    }
    if (last) return bytes.clear();
    patience.wait();
  }
  finish_requests();
}

void MpiGroup::tell(std::span<const std::byte> message) {
  for (int r = 1; r < size_; ++r) send(r, kMessageTag, message);
  finish_requests();
}

void MpiGroup::listen(std::vector<std::byte>& message) {
  receive(0, kMessageTag, message);
}

void MpiGroup::answer(std::span<const std::byte> message) {
  send(0, kAnswerTag, message);
  finish_requests();
}

std::vector<std::vector<std::byte>> MpiGroup::collect() {
  std::vector<std::vector<std::byte>> answers(static_cast<size_t>(size_));
  for (int r = 1; r < size_; ++r) receive(r, kAnswerTag, answers[static_cast<size_t>(r)]);
  return answers;
}

void MpiGroup::all_gather(std::span<const std::span<std::byte>> parts) {
  {
    const std::lock_guard lock(mpi_);
    for (int r = 0; r < size_; ++r) {
      const std::span<std::byte> part = parts[static_cast<size_t>(r)];
      if (r == rank_ || part.empty()) continue;
      MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, r, kPartTag, MPI_COMM_WORLD,
                &next_request());
    }
  }
  const std::span<std::byte> own = parts[static_cast<size_t>(rank_)];
  for (int r = 0; r < size_ && !own.empty(); ++r) {
    if (r != rank_) send(r, kPartTag, own);
  }
  finish_requests();
}

void MpiGroup::say(Pulse pulse) {
  const std::lock_guard lock(mpi_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Request request;
    // Whether it arrives is for the other to see.
    MPI_Isend(&kPulses[pulse], 1, MPI_CHAR, r, kPulseTag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }
}

void MpiGroup::hear() {
  for (;;) {
    const std::lock_guard lock(mpi_);
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kPulseTag, MPI_COMM_WORLD, &there, &status);
    if (there == 0) return;
    char pulse = kAlive;
    MPI_Recv(&pulse, 1, MPI_CHAR, status.MPI_SOURCE, kPulseTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const auto from = static_cast<size_t>(status.MPI_SOURCE);
    heard_[from] = Clock::now();
    if (pulse != kLeaves) continue;
    left_[from] = 1;
    if (from == 0) leader_left_ = true;
    if (leads() && !leaving_) give_up(status.MPI_SOURCE, "has ended");
  }
}

void MpiGroup::give_up(int rank, const char* what) {
  std::fprintf(
      stderr,
      "error: %s %s, so that its part of the model is missing and nothing can be computed; "
      "start all again once that process, its machine and the network between are well\n",
      names_[static_cast<size_t>(rank)].c_str(), what);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

bool MpiGroup::all_left() const {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && left_[static_cast<size_t>(r)] == 0) return false;
  }
  return true;
}

void MpiGroup::miss_silent_ones(Clock::time_point now) {
  for (int r = 0; r < size_; ++r) {
    const auto at = static_cast<size_t>(r);
    if (r == rank_ || left_[at] != 0 || now - heard_[at] <= kPatience) continue;
    give_up(r, "has not been heard of for four seconds");
  }
}

void MpiGroup::watch_others() {
  Clock::time_point last = Clock::now();
  bool leaves = false;
  for (;;) {
    // Once it leaves, the others' words are all that is waited for.
    if (leaves) {
      std::this_thread::sleep_for(kPulse / 25);
    } else {
      std::unique_lock lock(mutex_);
      leaves = end_.wait_for(lock, kPulse, [this] { return ends_; });
    }
    const Clock::time_point now = Clock::now();
    say(leaves ? kLeaves : kAlive);
    leaving_ = leaves;
    hear();
    // Whoever was stopped itself has not listened.
    if (now - last > 4 * kPulse) heard_.assign(heard_.size(), now);
    last = now;
    if (leaves && all_left()) return;
    miss_silent_ones(now);
  }
}

}  // namespace
}  // namespace aerie

extern "C" void aerie_open_mpi_group_1(std::shared_ptr<aerie::Group>& group, std::string& error) {
  setenv(aerie::kEagerVariable, aerie::kEagerBytes, 0);  // what the user says stays
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    error = "MPI_Init_thread failed";
  } else if (provided < MPI_THREAD_SERIALIZED) {
    error = "it does not let threads take turns";
  } else {
    group = std::make_shared<aerie::MpiGroup>();
  }
}
