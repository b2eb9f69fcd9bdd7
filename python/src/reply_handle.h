// A request as Python has it, from submit() to its end.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "aerie/engine.h"
#include "mailbox.h"

namespace aerie::python {

// Cancels the request if it is dropped before its end. Keeps the engine no longer than its owner
// does.
class ReplyHandle {
 public:
  ReplyHandle(std::weak_ptr<Engine> engine, Engine::RequestId id, std::shared_ptr<Mailbox> mailbox)
      : engine_(std::move(engine)), id_(id), mailbox_(std::move(mailbox)) {}
  ~ReplyHandle();
  ReplyHandle(const ReplyHandle&) = delete;
  ReplyHandle& operator=(const ReplyHandle&) = delete;

  Mailbox& mailbox() { return *mailbox_; }
  // Without the GIL: it may be the last to leave an engine that was closed.
  void cancel();

 private:
  std::weak_ptr<Engine> engine_;
  Engine::RequestId id_;
  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace aerie::python
