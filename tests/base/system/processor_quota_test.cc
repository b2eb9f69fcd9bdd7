#include "base/system/processor_quota.h"

#include "tests/testing/system_files.h"

namespace aerie::processor_quota_test {

using ProcessorQuota = test::SystemFiles;

TEST_F(ProcessorQuota, OfVersion2) {
  EXPECT_EQ(processor_quota(root_), -1);
  write("/proc/self/cgroup", "0::/outer/inner\n");
  write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(processor_quota(root_), -1);
  write("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_quota(root_), 1.5);
  write("/sys/fs/cgroup/outer/inner/cpu.max", "400000 100000\n");
  EXPECT_EQ(processor_quota(root_), 1.5);
  write("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n");
  EXPECT_EQ(processor_quota(root_), 0.5);
}

TEST_F(ProcessorQuota, WhereThePathIsTheHosts) {
  write("/proc/self/cgroup", "0::/host/only/there\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(processor_quota(root_), 2.0);
  write("/proc/self/cgroup", "0::/../..\n");
  EXPECT_EQ(processor_quota(root_), 2.0);
}

TEST_F(ProcessorQuota, OfVersion1) {
  write("/proc/self/cgroup", "9:memory:/x\n4:cpu,cpuacct:/docker\n1:name=systemd:/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), -1);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(processor_quota(root_), 2.5);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "nonsense\n");
  EXPECT_EQ(processor_quota(root_), -1);
}

}  // namespace aerie::processor_quota_test
