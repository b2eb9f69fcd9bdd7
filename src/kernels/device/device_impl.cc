// Device on the CUDA runtime, or on the emulated one: compiled twice.
#include "kernels/device/device_impl.h"

#include <algorithm>
#include <cstdio>
#include <type_traits>

#include "kernels/device/attention/device_attention.h"
#include "kernels/device/attention/latent_attention.h"
#include "kernels/device/attention/latent_rows.h"
#include "kernels/device/experts/add_experts.h"
#include "kernels/device/experts/launch_expert_product.h"
#include "kernels/device/experts/route.h"
#include "kernels/device/launch_product.h"
#include "kernels/device/linear/launch_linear.h"
#include "kernels/device/rows.h"
#include "kernels/device/top.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::device {

struct Graph {
  cudaGraphExec_t exec = nullptr;
};

namespace {

class DeviceImpl final : public Device {
 public:
  DeviceImpl() = default;
  ~DeviceImpl() override;
  DeviceImpl(const DeviceImpl&) = delete;
  DeviceImpl& operator=(const DeviceImpl&) = delete;

  // Sets error().
  void open(int index);

  Info info() override;
  void* allocate(size_t bytes) override;
  void release(void* memory) override {
    use();
    note(cudaFree(memory), "freeing memory");
  }
  void* allocate_host(size_t bytes) override;
  void release_host(void* memory) override {
    use();
    note(cudaFreeHost(memory), "freeing memory");
  }
  void copy_in(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    use();
    note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "a copy to it");
  }
  void copy_out(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    use();
    note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "a copy from it");
  }
  void clear(void* memory, size_t bytes) override {
    use();
    note(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing memory");
  }
  bool wait() override {
    use();
    note(cudaStreamSynchronize(stream_), "the work");
    if (timed_runs_ > 0) add_graph_time();
    return error_[0] == '\0';
  }
  void mark() override {
    use();
    note(cudaEventRecord(mark_, stream_), "a mark");
  }
  bool wait_for_mark() override {
    use();
    note(cudaEventSynchronize(mark_), "the work");
    return error_[0] == '\0';
  }
  const char* error() override { return error_; }

  void begin_graph() override;
  Graph* end_graph() override;
  void launch(Graph* graph) override {
    use();
    if (graph == nullptr) return;
    if (!timed_) return note(cudaGraphLaunch(graph->exec, stream_), "starting a graph");
    const GraphClock& clock = graph_clocks_[timed_runs_ % kTimedRuns];
    note(cudaEventRecord(clock.begin, stream_), "the clock");
    note(cudaGraphLaunch(graph->exec, stream_), "starting a graph");
    note(cudaEventRecord(clock.end, stream_), "the clock");
    ++timed_runs_;
  }
  void destroy(Graph* graph) override;

  void product(const Product& args) override;
  void place(const Place& args) override;
  void place_latent(const PlaceLatent& args) override;
  void attend(const Attend& args) override;
  void begin(const Begin& args) override;
  void layer_norm(const LayerNorm& args) override;
  void add_normed(const AddNormed& args) override;
  void copy_rows(const CopyRows& args) override;
  void narrow_rows(const NarrowRows& args) override;
  void narrow_heads(const NarrowHeads& args) override;
  void map_rows(const MapRows& args) override;
  void gate_rows(const GateRows& args) override;
  void join_inputs(const JoinInputs& args) override;
  void move_entries(const MoveEntries& args) override;
  void best(const Best& args) override;
  void top(const Top& args) override;
  void next_rows(const NextRows& args) override;
  void route(const Route& args) override;
  void expert_product(const ExpertProduct& args) override;
  void add_experts(const AddExperts& args) override;
  void add_beside(const AddBeside& args) override;
  void convolve(const Convolve& args) override {
    use();
    note(launch_convolve(args, stream_), "a short convolution");
  }
  void scan_states(const ScanStates& args) override {
    use();
    note(launch_scan_states(args, stream_), "linear attention");
  }
  void gate_heads(const GateHeads& args) override {
    use();
    note(launch_gate_heads(args, stream_), "gates");
  }
  void gate_groups(const GateGroups& args) override {
    use();
    note(launch_gate_groups(args, stream_), "gates");
  }
  void move_states(const MoveStates& args) override {
    use();
    note(launch_move_states(args, stream_), "moving states");
  }

  void start_clock() override;
  double stop_clock() override;
  void time_graphs(bool timed) override {
    timed_ = timed;
    timed_runs_ = 0;
  }
  double graph_seconds() override { return graph_seconds_; }

 private:
  struct GraphClock {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  static constexpr int kTimedRuns = 2;

  void add_graph_time();
  void note(cudaError_t status, const char* what);
  // The runtime's calls are for the device that their thread has chosen.
  void use() { note(cudaSetDevice(index_), "choosing it"); }
  template <typename... P>
  void launch_kernel(const char* what, void (*kernel)(P...), const simt::Shape& shape,
                     std::type_identity_t<P>... args) {
    note(simt::launch(kernel, shape, stream_, args...), what);
  }
  template <int kTiles, int kHeadDim>
  void attend_heads(const AttendLaunch& launch);
  template <int kTiles>
  void attend_tiles(const AttendLaunch& launch);
  template <int kTiles>
  void attend_latent_tiles(const Attend& args);
  void attend_latents(const Attend& args);

  int index_ = 0, processors_ = 1;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr, mark_ = nullptr;
  GraphClock graph_clocks_[kTimedRuns];
  bool timed_ = false;
  int timed_runs_ = 0;  // since the last wait
  double graph_seconds_ = 0.0;
  char error_[256] = "";
};

void DeviceImpl::note(cudaError_t status, const char* what) {
  if (status == cudaSuccess || error_[0] != '\0') return;
  std::snprintf(error_, sizeof error_, "%s failed on the device: %s", what,
                cudaGetErrorString(status));
}

void DeviceImpl::open(int index) {
  index_ = index;
  note(cudaSetDevice(index), "opening it");
  note(cudaStreamCreate(&stream_), "opening it");
  note(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, index), "opening it");
  note(cudaEventCreate(&begin_), "opening it");
  note(cudaEventCreate(&end_), "opening it");
  note(cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming), "opening it");
  for (GraphClock& clock : graph_clocks_) {
    note(cudaEventCreate(&clock.begin), "opening it");
    note(cudaEventCreate(&clock.end), "opening it");
  }
}

DeviceImpl::~DeviceImpl() {
  for (cudaEvent_t event : {begin_, end_, mark_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (const GraphClock& clock : graph_clocks_) {
    if (clock.begin != nullptr) cudaEventDestroy(clock.begin);
    if (clock.end != nullptr) cudaEventDestroy(clock.end);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Info DeviceImpl::info() {
  use();
  Info info;
  size_t free = 0, total = 0;
  note(cudaMemGetInfo(&free, &total), "asking for its memory");
  info.memory = static_cast<int64_t>(total);
  info.free = static_cast<int64_t>(free);
  cudaDeviceProp properties;
  note(cudaGetDeviceProperties(&properties, index_), "asking what it is");
  std::snprintf(info.name, sizeof info.name, "%.127s", properties.name);
  info.processors = properties.multiProcessorCount;
  info.major = properties.major;
  info.minor = properties.minor;
  info.shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
#ifndef __CUDACC__
  info.emulated = true;
#endif
  return info;
}

void* DeviceImpl::allocate(size_t bytes) {
  use();
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  static_cast<void>(cudaGetLastError());  // that there is not enough is no error of later work
  return nullptr;
}

void* DeviceImpl::allocate_host(size_t bytes) {
  use();
  void* memory = nullptr;
  if (cudaMallocHost(&memory, bytes) == cudaSuccess) return memory;
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

void DeviceImpl::begin_graph() {
  use();
  note(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "writing down work");
}

Graph* DeviceImpl::end_graph() {
  use();
  cudaGraph_t graph = nullptr;
  note(cudaStreamEndCapture(stream_, &graph), "writing down work");
  if (graph == nullptr) return nullptr;
  auto* out = new Graph;
  const cudaError_t made = cudaGraphInstantiate(&out->exec, graph, 0);
  cudaGraphDestroy(graph);
  if (made == cudaErrorMemoryAllocation) {  // no error of later work
    static_cast<void>(cudaGetLastError());
    destroy(out);
    return nullptr;
  }
  note(made, "preparing a graph");
  if (error_[0] == '\0') return out;
  destroy(out);
  return nullptr;
}

void DeviceImpl::destroy(Graph* graph) {
  if (graph == nullptr) return;
  use();
  if (graph->exec != nullptr) cudaGraphExecDestroy(graph->exec);
  delete graph;
}

void DeviceImpl::product(const Product& args) {
  if (args.most_rows <= 0) return;
  use();
  note(launch_product(args, stream_), "a product");
}

void DeviceImpl::place(const Place& args) {
  use();
  const int heads = args.heads + args.shape.kv_heads;
  constexpr int kWarps = kRowThreads / 32;
  constexpr const char* kWhat = "placing keys and values";
  const simt::Shape shape = {dim3((heads + kWarps - 1) / kWarps, args.most_rows), dim3(kRowThreads),
                             0, true};
  if (args.shape.head_dim <= 128) return launch_kernel(kWhat, place_kernel<2>, shape, args);
  if (args.shape.head_dim <= kMostHeadDim) {
    return launch_kernel(kWhat, place_kernel<kMostHeadDim / 64>, shape, args);
  }
  launch_kernel(kWhat, place_kernel<kWideHeadDim / 64>, shape, args);
}

void DeviceImpl::place_latent(const PlaceLatent& args) {
  use();
  constexpr int kWarps = kRowThreads / 32;
  launch_kernel("placing latents", place_latent_kernel,
                {dim3(args.heads / kWarps + 1, args.most_rows), dim3(kRowThreads), 0, true}, args);
}

template <int kTiles, int kHeadDim>
void DeviceImpl::attend_heads(const AttendLaunch& launch) {
  const Attend& a = launch.a;
  launch_kernel("attention", attention_kernel<kTiles, kHeadDim>,
                {dim3(a.most_chunks, a.shape.kv_heads, a.most_tiles * launch.pieces),
                 dim3(kAttentionThreads), sizeof(AttentionShared<kTiles, kHeadDim>), true},
                launch);
}

template <int kTiles>
void DeviceImpl::attend_tiles(const AttendLaunch& launch) {
  switch (launch.a.shape.head_dim) {
    case 64:
      return attend_heads<kTiles, 64>(launch);
    case 128:
      return attend_heads<kTiles, 128>(launch);
    case 256:
      return attend_heads<kTiles, 256>(launch);
    case kWideHeadDim:
      return attend_heads<kTiles, kWideHeadDim>(launch);
    default:
      return attend_heads<kTiles, 0>(launch);
  }
}

template <int kTiles>
void DeviceImpl::attend_latent_tiles(const Attend& args) {
  constexpr int kColumns = LatentShared<kTiles>::kColumns;
  launch_kernel("latent attention", latent_attention_kernel<kTiles>,
                {dim3(args.most_chunks, (args.heads + kColumns - 1) / kColumns, args.most_tiles),
                 dim3(kAttentionThreads), sizeof(LatentShared<kTiles>), true},
                args);
}

// More heads to a block read the latents less often; with fewer each block is done sooner, as long
// as there is a processor for each.
void DeviceImpl::attend_latents(const Attend& args) {
  static_assert(kFewLatentHeads == 8 && kLatentHeads == 32);
  const int64_t of_head = int64_t{args.most_chunks} * args.most_tiles;
  const auto is_for = [&](int heads) {
    const int parts = (args.heads + heads - 1) / heads;
    return parts == 1 || of_head * parts <= processors_;
  };
  if (is_for(8)) return attend_latent_tiles<1>(args);
  if (is_for(16)) return attend_latent_tiles<2>(args);
  attend_latent_tiles<4>(args);
}

// Tiles are cut, as long as that leaves a block fewer columns to do, until there are two blocks
// for each processor.
void DeviceImpl::attend(const Attend& args) {
  use();
  if (args.shape.value_prefix > 0) return attend_latents(args);
  const int per_row = args.heads / args.shape.kv_heads;
  int of_tile = args.tile_rows > 0 ? args.tile_rows : most_tile_rows(per_row);
  if (args.most_rows < of_tile) of_tile = args.most_rows;
  int rows = of_tile;
  int64_t blocks = int64_t{args.most_chunks} * args.shape.kv_heads * args.most_tiles;
  while (rows > 1 && per_row * rows > 8 && 2 * blocks <= 2 * processors_) {
    rows = (rows + 1) / 2;
    blocks *= 2;
  }
  const AttendLaunch launch = {args, rows, (of_tile + rows - 1) / rows};
  if (per_row * rows <= 8) {
    attend_tiles<1>(launch);
  } else if (per_row * rows <= 16) {
    attend_tiles<2>(launch);
  } else {
    attend_tiles<4>(launch);
  }
}

void DeviceImpl::begin(const Begin& args) {
  use();
  launch_kernel("the first norm", begin_kernel, {dim3(args.most_rows), dim3(kRowThreads), 0, true},
                args);
}

void DeviceImpl::layer_norm(const LayerNorm& args) {
  use();
  launch_kernel("a norm", layer_norm_kernel,
                {dim3(args.most_rows), dim3(kRowThreads), sizeof(RowShared), true}, args);
}

void DeviceImpl::add_normed(const AddNormed& args) {
  use();
  launch_kernel("a norm", args.scale != 1.0f ? add_normed_kernel<true> : add_normed_kernel<false>,
                {dim3(args.most_rows), dim3(kRowThreads), sizeof(RowShared), true}, args);
}

void DeviceImpl::copy_rows(const CopyRows& args) {
  use();
  launch_kernel("copying rows", copy_rows_kernel,
                {dim3(args.most_rows), dim3(kRowThreads), sizeof(RowShared), true}, args);
}

void DeviceImpl::narrow_rows(const NarrowRows& args) {
  use();
  launch_kernel("rounding rows", narrow_rows_kernel,
                {dim3(args.most_rows), dim3(kRowThreads), sizeof(RowShared), true}, args);
}

void DeviceImpl::narrow_heads(const NarrowHeads& args) {
  use();
  const int blocks = (args.heads * args.width + kRowThreads - 1) / kRowThreads;
  launch_kernel("rounding heads", narrow_heads_kernel,
                {dim3(blocks, args.most_rows), dim3(kRowThreads), 0, true}, args);
}

void DeviceImpl::map_rows(const MapRows& args) {
  use();
  launch_kernel("adding rows", map_rows_kernel, {dim3(args.most_rows), dim3(kRowThreads), 0, true},
                args);
}

void DeviceImpl::gate_rows(const GateRows& args) {
  use();
  launch_kernel("gates", gate_rows_kernel, {dim3(args.most_rows), dim3(kRowThreads), 0, true},
                args);
}

void DeviceImpl::join_inputs(const JoinInputs& args) {
  use();
  constexpr int kWarps = kRowThreads / 32;
  launch_kernel(
      "layers' inputs", join_inputs_kernel,
      {dim3((args.parts + kWarps - 1) / kWarps, args.most_rows), dim3(kRowThreads), 0, true}, args);
}

void DeviceImpl::move_entries(const MoveEntries& args) {
  use();
  launch_kernel("moving keys and values", move_entries_kernel,
                {dim3(args.shape.kv_heads, args.layers), dim3(kRowThreads), 0, true}, args);
}

void DeviceImpl::best(const Best& args) {
  use();
  launch_kernel("finding the best tokens", best_kernel,
                {dim3(kBestParts, args.most_rows), dim3(kRowThreads), sizeof(BestShared), true},
                args);
}

void DeviceImpl::top(const Top& args) {
  use();
  launch_kernel(
      "finding the best tokens", top_kernel,
      {dim3(kBestParts, args.most_rows * args.each), dim3(kRowThreads), sizeof(TopShared), true},
      args);
}

void DeviceImpl::next_rows(const NextRows& args) {
  use();
  launch_kernel("going on behind rows", next_rows_kernel,
                {dim3(args.most_rows), dim3(kRowThreads), 0, true}, args);
}

void DeviceImpl::route(const Route& args) {
  use();
  const dim3 blocks((args.most_rows + kRouteRows - 1) / kRouteRows), threads(kRouteThreads);
  launch_kernel("choosing experts", is_scored(args) ? route_kernel<true> : route_kernel<false>,
                {blocks, threads, sizeof(RouteShared), true}, args);
}

void DeviceImpl::expert_product(const ExpertProduct& args) {
  use();
  note(launch_expert_product(args, stream_), "a product of experts");
}

void DeviceImpl::add_experts(const AddExperts& args) {
  use();
  launch_kernel("adding what experts give", add_experts_kernel,
                {dim3((args.width + kRowThreads - 1) / kRowThreads, args.most_rows),
                 dim3(kRowThreads), 0, true},
                args);
}

void DeviceImpl::add_beside(const AddBeside& args) {
  use();
  launch_kernel("adding what experts give", add_beside_kernel,
                {dim3(args.most_rows), dim3(kRowThreads), sizeof(RowShared), true}, args);
}

void DeviceImpl::start_clock() {
  use();
  note(cudaEventRecord(begin_, stream_), "the clock");
}

double DeviceImpl::stop_clock() {
  use();
  note(cudaEventRecord(end_, stream_), "the clock");
  note(cudaEventSynchronize(end_), "the work");
  float ms = 0.0f;
  note(cudaEventElapsedTime(&ms, begin_, end_), "the clock");
  return static_cast<double>(ms) * 1e-3;
}

void DeviceImpl::add_graph_time() {
  for (int i = 0; i < std::min(timed_runs_, kTimedRuns); ++i) {
    float ms = 0.0f;
    note(cudaEventElapsedTime(&ms, graph_clocks_[i].begin, graph_clocks_[i].end), "the clock");
    graph_seconds_ += static_cast<double>(ms) * 1e-3;
  }
  timed_runs_ = 0;
}

}  // namespace

int most_tile_rows(int heads_per_kv) {
  const int rows = kMostColumns / heads_per_kv;
  return rows < 1 ? 1 : rows > kMostTileRows ? kMostTileRows : rows;
}

int64_t partial_floats(const CacheShape& shape, int heads, int rows, int chunks) {
  const int values = shape.value_prefix > 0 ? shape.value_prefix : shape.head_dim;
  return static_cast<int64_t>(rows) * heads * parts_of(chunks) * part_floats(values);
}

int64_t arrival_counters(const CacheShape& shape, int rows, int chunks) {
  return static_cast<int64_t>(rows) * shape.kv_heads * counters_of(chunks);
}

Device* make_device(int index, char* error, size_t error_size) {
  auto* device = new DeviceImpl;
  device->open(index);
  if (device->error()[0] == '\0') return device;
  std::snprintf(error, error_size, "%s", device->error());
  delete device;
  return nullptr;
}

}  // namespace aerie::device
