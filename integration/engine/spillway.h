/* The C ABI between the engine and its callers: PyTorch's allocator library, tests, other frameworks. The
 * engine is opened RTLD_LOCAL, so it hands out this table instead of symbols. All calls may come from any
 * thread; none throws. Results of type int are CUresult values: 0 success, 1 invalid value, 2 out of memory,
 * 3 not initialized (after fork or shutdown: the caller does without us), 999 a failure of ours; any other is
 * the driver's own code, for example that of a device-side error. last_error() has the text of a refusal. */

#ifndef SPILLWAY_INTEGRATION_ENGINE_SPILLWAY_H_
#define SPILLWAY_INTEGRATION_ENGINE_SPILLWAY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_API_VERSION 2

/* A snapshot of the bytes of one device. */
typedef struct spillway_device_stats {
  uint64_t budget_bytes;
  uint64_t live_bytes;      /* blocks handed out, in whole chunks */
  uint64_t requested_bytes; /* the same blocks as asked for */
  uint64_t chunk_bytes;     /* physical device memory that Spillway has */
  uint64_t peak_chunk_bytes;
  uint64_t cached_bytes; /* of chunk_bytes: freed blocks kept for the next allocation */
  uint64_t resident_bytes;
  uint64_t host_tier_bytes;
  uint64_t disk_tier_bytes;
  uint64_t spilled_bytes;
  uint64_t fetched_bytes;
} spillway_device_stats;

/* The result of a pause: bytes of whole chunks, by how they left the GPU and why they did not. */
typedef struct spillway_pause_stats {
  uint64_t clean_bytes;     /* left without a copy: the one in host memory or on the disk was the same */
  uint64_t host_bytes;      /* copied to host memory */
  uint64_t disk_bytes;      /* copied to the disk */
  uint64_t dropped_bytes;   /* of regions that do not keep them */
  uint64_t unused_bytes;    /* never used since their allocation */
  uint64_t pinned_bytes;    /* stay: something may use them without naming them (pointer tables, IPC) */
  uint64_t failed_bytes;    /* stay: they could not be copied */
  uint64_t released_bytes;  /* given back to the driver */
  uint64_t remaining_bytes; /* that Spillway still has on the devices */
  uint64_t other_bytes;     /* of the job's other allocations, as far as they are known: they remain */
  uint64_t nanoseconds;
  char failure[256]; /* why some could not be copied */
} spillway_pause_stats;

typedef struct spillway_api {
  uint32_t version; /* SPILLWAY_API_VERSION */
  uint32_t size;    /* sizeof(spillway_api) of the engine */
  const char* version_text;

  /* Blocks of fewer bytes are not ours: the framework's own allocator keeps them (1 MiB and less). */
  uint64_t smallest_block_bytes;

  /* Allocates a block of `bytes` on `device` for `stream` (a CUstream; null = legacy default stream). */
  int (*allocate)(int device, size_t bytes, void* stream, void** pointer);
  int (*free)(void* pointer);
  int (*record_stream)(void* pointer, void* stream);
  /* Returns 1 if the address lies in Spillway's address space (evicted blocks included), 0 otherwise. */
  int (*owns)(const void* pointer);
  /* Finds the start and size (as asked for) of the block that contains `pointer`. */
  int (*find_range)(const void* pointer, void** base, size_t* bytes);
  int (*empty_cache)(int device);
  /* total = budget and reserve; free = budget - resident live blocks - external memory, and, once blocks have
   * left the GPU, what others can make free by leaving. */
  int (*memory_info)(int device, size_t* free_bytes, size_t* total_bytes);
  int (*device_stats)(int device, spillway_device_stats* stats);
  /* Returns the text of the last refusal on this thread since its last allocation began, of a call of this
   * table or of a driver call; an empty string if there was none. It does not begin with "Spillway:". Valid
   * until the thread's next call. */
  const char* (*last_error)(void);

  /* The members below exist only if `size` covers them. */

  /* Writes all metrics as JSON, with the keys of docs/metrics.md. Writes at most `bytes`, the closing 0
   * included. `needed` gets the bytes of the whole text: ask again with that many if it is more than `bytes`.
   */
  int (*stats_json)(char* text, size_t bytes, size_t* needed);
  /* Writes the text of the last refusal, of a call of this table, a launch or a copy, on any thread; empty if
   * there was none. Written as by stats_json. */
  int (*last_refusal)(char* text, size_t bytes, size_t* needed);
  /* Reports PyTorch's "reserved" for our blocks: chunk_bytes, and the bytes of live blocks that are away or
   * were not used yet. Costs little however many blocks there are. */
  int (*reserved_bytes)(int device, size_t* now, size_t* peak);
  /* Marks the end of the job's iteration, on all devices. The launches of the calling thread before this call
   * belong to it. Prediction finds iterations without marks, too, but later. */
  int (*mark_iteration)(void);
  /* Returns 1 if a driver call of this thread (a launch, a copy, a graph) was refused since its last
   * allocation began, and this is the first question about it; last_error() has its text. Returns 0
   * otherwise. */
  int (*take_refused_call)(void);
  /* `listener` runs at each such refusal, on its thread, before the driver call returns to the application.
   * It must not call the driver. The process has one; null takes it away. */
  int (*on_refused_call)(void (*listener)(void));
  /* Reports the bytes of memory that the device has, whatever the budget: PyTorch shows them as total_memory.
   */
  int (*device_bytes)(int device, size_t* bytes);
  /* `listener` runs once, on the thread of a launch, before the first launch of a kernel that writes
   * addresses into memory of the framework's own (docs/audit.md, writer). memory_freed is to be called from
   * then on. The process has one; null takes it away. */
  int (*on_kernel_table)(void (*listener)(void));
  /* The framework reports memory of its own that it has freed and that was used on `stream`: the addresses
   * that it contains lead nowhere once the stream has done what is queued on it. Thread-safe; calls nothing
   * back. */
  int (*memory_freed)(int device, const void* pointer, size_t bytes, void* stream);
  /* Sets the framework's own limit on the device's budget, in bytes; SIZE_MAX: none. Blocks above it leave
   * the GPU. May be called before the device's first block. */
  int (*set_memory_cap)(int device, size_t bytes);
  /* Sets a limit from a text, as SPILLWAY_GPU_MEMORY takes it, or "none". Returns 0, or an error with its
   * text in last_error(), after which nothing changes: CUDA_ERROR_INVALID_VALUE for other texts and for more
   * than the device had for the job, CUDA_ERROR_OUT_OF_MEMORY if blocks that must stay need more. Blocks are
   * still leaving when it returns. */
  int (*set_gpu_memory)(int device, const char* size);
  /* Puts what this thread allocates from now on into the region `tag`; null: into none. keep = 0: its bytes
   * are dropped at a pause, and are undefined after the resume. */
  int (*set_region)(const char* tag, int keep);
  /* Makes the blocks of the region, or all with null, leave the GPU on all devices; they keep their
   * addresses. Waits until they have left. A launch or a copy that names one is refused with
   * CUDA_ERROR_ILLEGAL_STATE (401) until the resume. Returns 1 if no region has had the tag, 2 if host memory
   * and disk have no place, 401 if a pause is not possible now (a capture, an audit); nothing is paused then.
   * Blocks may stay: `stats`, which may be null, reports which. */
  int (*pause)(const char* tag, spillway_pause_stats* stats);
  /* Lets the blocks be named again. They come back in the order in which they are needed; with wait != 0
   * before this returns. */
  int (*resume)(const char* tag, int wait);
  /* Copies the first `bytes` of a block that is paused from its place in host memory to `to`. Returns 1 if it
   * is not paused, or not all of it lies in host memory. */
  int (*read_paused)(const void* pointer, void* to, size_t bytes);
  /* Like allocate, for memory that the framework divides itself. It belongs to the region of this thread, but
   * its bytes are kept at a pause, since tensors from outside the region may lie there, too. */
  int (*allocate_segment)(int device, size_t bytes, void* stream, void** pointer);
} spillway_api;

/* The engine's exported symbols that are not the preload's. spillway_engine_api never returns null. */
const spillway_api* spillway_engine_api(void);
#define SPILLWAY_ENGINE_API "spillway_engine_api"

/* Checks settings that a caller is about to set as the start does, whether the engine runs or not. Names and
 * values are as in PyTorch's variable, without brackets; a setting that is not among them is read from the
 * SPILLWAY_ variables. Returns 0 if a process that starts with them is not stopped for them. Otherwise
 * returns 1, and `text` gets the sentence, cut off at `bytes`. Any thread may call it that may read the
 * environment. May take 10 s if a disk is full. The size of the GPU, which needs the driver, is left out. */
int spillway_engine_check_settings(const char* const* names, const char* const* values, size_t count,
                                   char* text, size_t bytes);
#define SPILLWAY_ENGINE_CHECK_SETTINGS "spillway_engine_check_settings"

/* The function that the engine looks up in libspillway_torch_<major>_<minor>.so after it has opened it. It
 * puts our allocator in the place of PyTorch's. Returns 0 if installed. Otherwise, and also if only a part is
 * missing that nothing depends on, `error` gets a short text. Must run before CUDA's lazy initialization.
 * `release`: the PyTorch that runs, "2.11.0+cu130". SPILLWAY_TORCH_NOT_YET: PyTorch has no allocator yet. */
typedef int (*spillway_torch_install_fn)(const spillway_api* api, const char* release, char* error,
                                         size_t error_bytes);
enum { SPILLWAY_TORCH_NOT_YET = 2 };
#define SPILLWAY_TORCH_INSTALL "spillway_torch_install"

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_ENGINE_SPILLWAY_H_ */
