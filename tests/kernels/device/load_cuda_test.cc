#include "kernels/device/load_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/device/cuda_library.h"

namespace aerie::device::load_cuda_test {

using testing::AllOf;
using testing::HasSubstr;

Status outcome(const std::string& library, CudaOutcome outcome = CudaOutcome::kNoDriver) {
  const Expected<std::unique_ptr<Device>> device = open_cuda(static_cast<int>(outcome), library);
  EXPECT_FALSE(device.ok());
  return device.status();
}

TEST(LoadCuda, WhatIsNoLibraryIsNamed) {
  const Status status = outcome("/proc/self/status");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("/proc/self/status cannot be loaded: "));
  EXPECT_THAT(outcome("/no/such/library.so").message(), HasSubstr("/no/such/library.so"));
}

TEST(LoadCuda, ALibraryOfOthersIsRefused) {
  EXPECT_THAT(outcome("libm.so.6").message(), HasSubstr("is no library of Aerie's for GPUs"));
}

TEST(LoadCuda, ALibraryOfAnotherBuildIsRefusedBeforeAnythingOfItRuns) {
  const Status status = outcome(AERIE_OTHER_CUDA);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("of another build (of another build)"),
                                      HasSubstr("build both of the same sources")));
}

TEST(LoadCuda, SaysWhatTheLibraryFound) {
  const auto code = [](CudaOutcome of) {
    const Status status = outcome(AERIE_FAKE_CUDA, of);
    EXPECT_EQ(status.message(), "that is how it is");
    return status.code();
  };
  EXPECT_EQ(code(CudaOutcome::kNoDriver), StatusCode::kUnsupported);
  EXPECT_EQ(code(CudaOutcome::kNoSuchDevice), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(CudaOutcome::kTooOld), StatusCode::kUnsupported);
  EXPECT_EQ(code(CudaOutcome::kFailed), StatusCode::kResourceExhausted);
}

}  // namespace aerie::device::load_cuda_test
