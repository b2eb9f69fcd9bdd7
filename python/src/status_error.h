// Statuses as Python's exceptions: the classes of aerie/errors.py, with the status's message.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "aerie/status.h"

namespace aerie::python {

// Thrown with or without the GIL; nanobind makes the exception of it.
class StatusError final : public std::exception {
 public:
  // Requires a status that is not ok.
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void check(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <typename T>
T unwrap(Expected<T> value) {
  if (!value.ok()) throw StatusError(value.status());
  return std::move(value).value();
}

// "invalid_argument", ...: what aerie/errors.py knows them by.
const char* code_name(StatusCode code);

void register_errors();

}  // namespace aerie::python
