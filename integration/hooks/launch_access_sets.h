// Access-set builders of kernel launches and graph nodes: the blocks that parameters name, by the function's
// layout. Called by the wrappers' families on the thread of the call, before the gate; no lock and no
// allocation once the function is known. A kernel without a layout is marked as reaching everything.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LAUNCH_ACCESS_SETS_H_
#define SPILLWAY_INTEGRATION_HOOKS_LAUNCH_ACCESS_SETS_H_

#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/copy_access_sets.h"

namespace spillway::integration {

// The parameters of one launch of `function`, a CUfunction or a CUkernel. Both forms are looked through; the
// driver judges a call that gives both. Sets the touch's tag.
void CollectKernel(Touch* touch, void* function, void* const* params, void* const* extra);

struct KernelLaunch {
  // cuLaunchKernel, and the cooperative form without `extra`.
  static void Collect(Touch* touch, CUfunction function, unsigned int, unsigned int, unsigned int,
                      unsigned int, unsigned int, unsigned int, unsigned int, CUstream, void** params,
                      void** extra = nullptr) {
    CollectKernel(touch, function, params, extra);
  }
  // cuLaunchKernelEx.
  static void Collect(Touch* touch, const CUlaunchConfig* config, CUfunction function, void** params,
                      void** extra) {
    CollectKernel(touch, function, params, extra);
    if (config != nullptr) CollectAttributes(touch, *config);
  }
  // cuLaunchCooperativeKernelMultiDevice.
  static void Collect(Touch* touch, CUDA_LAUNCH_PARAMS* launches, unsigned int count, unsigned int) {
    for (unsigned int i = 0; launches != nullptr && i < count; ++i) {
      CollectKernel(touch, launches[i].function, launches[i].kernelParams, nullptr);
    }
  }

 private:
  static void CollectAttributes(Touch* touch, const CUlaunchConfig& config) {
    for (unsigned int i = 0; config.attrs != nullptr && i < config.numAttrs; ++i) {
      if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) continue;
      const CUaccessPolicyWindow& window = config.attrs[i].value.accessPolicyWindow;
      touch->Range(AddressOf(window.base_ptr), window.num_bytes);
    }
  }
};

// Parameters of a graph node, in whatever struct the call hands them over, found among its arguments by type.
void CollectNode(Touch* touch, const CUgraphNodeParams* params);
void CollectNode(Touch* touch, const CUDA_KERNEL_NODE_PARAMS_v1* params);
void CollectNode(Touch* touch, const CUDA_KERNEL_NODE_PARAMS_v2* params);
void CollectNode(Touch* touch, const CUDA_KERNEL_NODE_PARAMS_v3* params);
void CollectNode(Touch* touch, const CUDA_MEMCPY3D* params);
void CollectNode(Touch* touch, const CUDA_MEMSET_NODE_PARAMS_v1* params);
void CollectNode(Touch* touch, const CUDA_MEMSET_NODE_PARAMS_v2* params);
void CollectNode(Touch* touch, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* params);
void CollectNode(Touch* touch, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2* params);

struct GraphNode {
  template <typename... A>
  static void Collect(Touch* touch, A... args) {
    (One(touch, args), ...);
  }

 private:
  template <typename T>
  static void One(Touch* touch, T arg) {
    if constexpr (requires { CollectNode(touch, arg); }) {
      if constexpr (std::is_pointer_v<T>) {
        if (arg != nullptr) CollectNode(touch, arg);
      }
    } else {
      touch->Address(AddressOf(arg));  // cuGraphAddMemFreeNode
    }
  }
};

// Any argument that is an address of ours.
struct AnyArgument {
  template <typename... A>
  static void Collect(Touch* touch, A... args) {
    (touch->Address(AddressOf(args)), ...);
  }
};

// A resource description (texture, surface): each of its words.
struct ResourceWords {
  template <typename H, typename... Rest>
  static void Collect(Touch* touch, H*, const CUDA_RESOURCE_DESC* resource, Rest...) {
    if (resource != nullptr) ScanBytes(resource, sizeof(*resource), touch->map(), &touch->set());
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_ACCESS_SETS_H_
