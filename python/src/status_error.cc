#include "status_error.h"

#include <nanobind/stl/string.h>

namespace aerie::python {

namespace nb = nanobind;

const char* code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kInvalidData:
      return "invalid_data";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kResourceExhausted:
      return "resource_exhausted";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      break;
  }
  return "internal";
}

void register_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void* /*payload*/) {
    try {
      std::rethrow_exception(thrown);
    } catch (const StatusError& error) {
      const nb::object made =
          nb::module_::import_("aerie.errors")
              .attr("error_of")(code_name(error.status().code()), error.status().message());
      PyErr_SetObject(made.type().ptr(), made.ptr());
    }
  });
}

}  // namespace aerie::python
