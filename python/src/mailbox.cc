#include "mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

namespace aerie::python {

Notifier::Notifier() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Notifier::~Notifier() {
  close(descriptor_);
}

void Notifier::ring(uint64_t tag) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(tags_, tag) != tags_.end()) return;
  tags_.push_back(tag);
  // It can only fail where it is readable already.
  if (tags_.size() == 1) eventfd_write(descriptor_, 1);
}

std::vector<uint64_t> Notifier::drain() {
  const std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  eventfd_read(descriptor_, &count);
  return std::exchange(tags_, {});
}

void Mailbox::on_delta(ReplyDelta delta) {
  bool awaited = false;
  {
    const std::lock_guard lock(mutex_);
    news_.text += delta.text;
    std::ranges::move(delta.tokens, std::back_inserter(news_.tokens));
    if (!delta.prompt_logprobs.empty()) news_.prompt_logprobs = std::move(delta.prompt_logprobs);
    awaited = readers_ > 0;
  }
  // Who waits for the end is left asleep: the core is needed.
  tell(awaited, !at_end_alone_);
}

void Mailbox::on_end(ReplyEnd end) {
  {
    const std::lock_guard lock(mutex_);
    news_.text += end.text;
    news_.end = std::move(end);
    ended_ = true;
  }
  tell(true, true);
}

void Mailbox::tell(bool wake, bool ring) {
  if (wake) arrived_.notify_all();
  if (ring && notifier_ != nullptr) notifier_->ring(tag_);
}

Mailbox::News Mailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

bool Mailbox::wait(bool for_end, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  if (!for_end) ++readers_;
  const bool there =
      arrived_.wait_for(lock, most, [&] { return ended_ || (!for_end && !news_.tokens.empty()); });
  if (!for_end) --readers_;
  return there;
}

bool Mailbox::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

}  // namespace aerie::python
