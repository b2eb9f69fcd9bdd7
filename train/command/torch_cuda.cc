#include "train/command/torch_cuda.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtorch_cuda.so";

// Beside the part that this program is linked to.
std::string path_of_library() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0) return kLibrary;
  std::error_code ignored;
  const fs::path path = fs::canonical(info.dli_fname, ignored).parent_path() / kLibrary;
  return fs::exists(path, ignored) ? path.string() : kLibrary;
}

}  // namespace

// What LibTorch knows of CUDA it asks for once: this comes before the first question.
Status load_cuda() {
  static void* const library = dlopen(path_of_library().c_str(), RTLD_NOW | RTLD_GLOBAL);
  static const std::string reason = library == nullptr ? dlerror() : "";
  if (library == nullptr) {
    return {StatusCode::kUnsupported,
            fmt::format("this LibTorch computes on the processor alone ({}); a program that is "
                        "built with an installed PyTorch for CUDA has more: docs/training.md",
                        reason)};
  }
  if (!at::hasCUDA()) {
    return {StatusCode::kUnsupported,
            "LibTorch finds no GPU: is there a driver, and does CUDA_VISIBLE_DEVICES hide it?"};
  }
  return {};
}

}  // namespace aerie::train
