// Readers of the arguments of kernel launches, graph nodes and calls that take a resource. Each adds the
// blocks that the parameters name, by the function's layout, to the call's access-set builder. The wrappers'
// families call them on the thread of the call, before the gate. They take no lock and allocate nothing once
// the function is known. They cannot fail: a kernel without a layout is marked as one that may reach every
// block.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LAUNCH_ACCESS_SETS_H_
#define SPILLWAY_INTEGRATION_HOOKS_LAUNCH_ACCESS_SETS_H_

#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/copy_access_sets.h"

namespace spillway::integration {

// Adds the blocks that the parameters of one launch name, and sets the builder's tag. `function`: a
// CUfunction or a CUkernel. Both `params` and `extra` are scanned; the driver judges a call that gives both.
void CollectKernel(AccessSetBuilder* builder, void* function, void* const* params, void* const* extra);

// Records with each device whose blocks are in the set that the launch may begin before the one ahead of it
// on the stream has ended. A default stream counts as that of the device. Lock-free, except for a stream's
// first.
void RecordOverlap(AccessSetBuilder* builder, CUstream stream);

// Reads the launches of kernels, in each form of the driver's calls.
struct KernelLaunch {
  // cuLaunchKernel, and the cooperative form, which has no `extra`.
  static void Collect(AccessSetBuilder* builder, CUfunction function, unsigned int, unsigned int,
                      unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, CUstream,
                      void** params, void** extra = nullptr) {
    CollectKernel(builder, function, params, extra);
  }
  // cuLaunchKernelEx.
  static void Collect(AccessSetBuilder* builder, const CUlaunchConfig* config, CUfunction function,
                      void** params, void** extra) {
    CollectKernel(builder, function, params, extra);
    if (config != nullptr) CollectAttributes(builder, *config);
  }
  // cuLaunchCooperativeKernelMultiDevice. Each launch has a stream of its own, so the set is pinned, not
  // gated (hook_table.cc).
  static void Collect(AccessSetBuilder* builder, CUDA_LAUNCH_PARAMS* launches, unsigned int count,
                      unsigned int) {
    for (unsigned int i = 0; launches != nullptr && i < count; ++i) {
      CollectKernel(builder, launches[i].function, launches[i].kernelParams, nullptr);
    }
  }

 private:
  // Adds the range of an access policy window, which may be that of a block. Records a programmatic dependent
  // launch.
  static void CollectAttributes(AccessSetBuilder* builder, const CUlaunchConfig& config) {
    for (unsigned int i = 0; config.attrs != nullptr && i < config.numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config.attrs[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
        const CUaccessPolicyWindow& window = attribute.value.accessPolicyWindow;
        builder->Range(AddressOf(window.base_ptr), window.num_bytes);
      } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
        if (attribute.value.programmaticStreamSerializationAllowed != 0)
          RecordOverlap(builder, config.hStream);
      }
    }
  }
};

// Adds the blocks that the parameters of a graph node name, in each of the structs that calls take them in.
void CollectNode(AccessSetBuilder* builder, const CUgraphNodeParams* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_KERNEL_NODE_PARAMS_v1* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_KERNEL_NODE_PARAMS_v2* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_KERNEL_NODE_PARAMS_v3* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_MEMCPY3D* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_MEMSET_NODE_PARAMS_v1* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_MEMSET_NODE_PARAMS_v2* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params);
void CollectNode(AccessSetBuilder* builder, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2* params);

// Finds the node's parameters among the arguments by their type.
struct GraphNode {
  template <typename... A>
  static void Collect(AccessSetBuilder* builder, A... args) {
    (One(builder, args), ...);
  }

 private:
  template <typename T>
  static void One(AccessSetBuilder* builder, T arg) {
    if constexpr (requires { CollectNode(builder, arg); }) {
      if constexpr (std::is_pointer_v<T>) {
        if (arg != nullptr) CollectNode(builder, arg);
      }
    } else {
      builder->Address(AddressOf(arg));  // the address of cuGraphAddMemFreeNode
    }
  }
};

// Adds the block of each argument that is an address of ours.
struct AnyArgument {
  template <typename... A>
  static void Collect(AccessSetBuilder* builder, A... args) {
    (builder->Address(AddressOf(args)), ...);
  }
};

// Scans each word of a resource description (texture, surface).
struct ResourceWords {
  template <typename H, typename... Rest>
  static void Collect(AccessSetBuilder* builder, H*, const CUDA_RESOURCE_DESC* resource, Rest...) {
    if (resource != nullptr) ScanBytes(resource, sizeof(*resource), builder->map(), &builder->set());
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_ACCESS_SETS_H_
