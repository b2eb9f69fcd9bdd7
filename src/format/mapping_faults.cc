#include "format/mapping_faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace aerie {

// Never freed: the handler may be looking at it.
struct MappingFaults::Entry {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> failed{false};
  std::atomic<bool> taken{true};
  Entry* next = nullptr;
};

namespace {

std::atomic<MappingFaults::Entry*> entries{nullptr};
static_assert(std::atomic<uintptr_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);
uintptr_t page_bytes = 0;
struct sigaction previous = {};

// Whether the address is of a watched mapping, whose rest is zeros now. Safe in a handler.
bool fill_with_zeros(uintptr_t address) {
  for (MappingFaults::Entry* entry = entries.load(); entry != nullptr; entry = entry->next) {
    const uintptr_t begin = entry->begin.load(), end = entry->end.load();
    if (address < begin || address >= end) continue;
    entry->failed.store(true);
    const uintptr_t page = address / page_bytes * page_bytes;
    return mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
  }
  return false;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool from_kernel = info->si_code > 0;
  if (!from_kernel || !fill_with_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) {
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
      previous.sa_handler(number);
    } else {
      // The read is tried again, and has its usual end.
      signal(SIGBUS, SIG_DFL);
      if (!from_kernel) raise(SIGBUS);
    }
  }
  errno = error;
}

void catch_bus_errors() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
  });
}

MappingFaults::Entry* free_entry() {
  for (MappingFaults::Entry* entry = entries.load(); entry != nullptr; entry = entry->next) {
    if (!entry->taken.exchange(true)) return entry;
  }
  auto* entry = new MappingFaults::Entry();
  entry->next = entries.load();
  while (!entries.compare_exchange_weak(entry->next, entry)) {
  }
  return entry;
}

}  // namespace

MappingFaults::MappingFaults(void* begin, size_t size) {
  catch_bus_errors();
  entry_ = free_entry();
  entry_->failed.store(false);
  entry_->end.store(reinterpret_cast<uintptr_t>(begin) + size);
  entry_->begin.store(reinterpret_cast<uintptr_t>(begin));
}

MappingFaults::~MappingFaults() {
  if (entry_ == nullptr) return;
  entry_->end.store(0);
  entry_->begin.store(0);
  entry_->taken.store(false);
}

MappingFaults::MappingFaults(MappingFaults&& other) noexcept
    : entry_(std::exchange(other.entry_, nullptr)) {}

MappingFaults& MappingFaults::operator=(MappingFaults&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

bool MappingFaults::any() const {
  return entry_ != nullptr && entry_->failed.load();
}

}  // namespace aerie
