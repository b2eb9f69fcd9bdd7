// Errors as values: Status and Expected<T>. Everything that a user's file, flag or request can make
// fail returns one of these; nothing here throws or aborts on bad input.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace aerie {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // a flag, request or parameter is wrong: the caller can correct it
  kNotFound,           // a file, tensor or key is missing
  kInvalidData,        // a file is broken or hostile
  kUnsupported,        // well-formed, but not something this build handles
  kResourceExhausted,  // memory, cache pages, context length
  kCancelled,
  kInternal,
};

// A code and a message for the person who has to act on it: what, where, what to do. Cheap to copy
// when ok. Messages carry no trailing period and no newline.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != StatusCode::kOk);
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with `where` and a colon before the message: "models/x.gguf: ...".
  Status with_context(const std::string& where) const {
    return ok() ? *this : Status(code_, where + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT
  Expected(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT
    assert(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Ok for a value.
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  // Require ok().
  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace aerie
