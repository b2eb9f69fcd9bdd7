// Messages for the operator, on standard error. Not for results: those go to standard output.
#pragma once

#include <string>

namespace aerie {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Messages below `level` are dropped; the default is kWarning. Thread-safe.
void set_log_level(LogLevel level);

// One line, without a newline at its end. Thread-safe.
void log(LogLevel level, const std::string& message);

}  // namespace aerie
