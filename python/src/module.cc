#include "bindings.h"
#include "status_error.h"

#include "aerie/version.h"

namespace nb = nanobind;

namespace aerie::python {

nb::str text_of(std::string_view utf8) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "replace"));
}

}  // namespace aerie::python

NB_MODULE(_core, module) {
  // Engines that are open at the interpreter's end are closed by aerie/engines.py.
  nb::set_leak_warnings(false);
  module.doc() = "The engine's interface (include/aerie), one to one; aerie/ is made of it.";
  module.attr("version") = AERIE_VERSION_STRING;
  aerie::python::register_errors();
  aerie::python::bind_requests(module);
  aerie::python::bind_replies(module);
  aerie::python::bind_engine(module);
}
