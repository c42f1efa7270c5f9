/* simcuda: the stand-in driver's interface beyond the public driver API.
 *
 * Device code cannot run without a GPU, so a kernel is a host function that was registered under a name with
 * a declared parameter layout. Everything else (modules, parameters, streams, memory) goes through the driver
 * API. Plain C; exported by our libcuda.so.1 only. Link against it, or find the names by dlsym and do
 * without. All functions may be called from any thread unless stated otherwise; none of them calls back into
 * the caller. */
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_SIMCUDA_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_SIMCUDA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUfunc_st;
struct CUstream_st;

/* The facts about a launch that its running kernel may ask for. Valid until the host function returns. */
typedef struct simcuda_launch {
  size_t struct_bytes; /* sizeof this struct in the driver: new members come at the end */
  const char* name;
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  int device;                 /* ordinal */
  struct CUstream_st* stream; /* the stream's own handle, never 0; the legacy stream has one, too */
  uint64_t stream_id;         /* as cuStreamGetId returns it */
  const void* buffer;         /* the parameters as one block of bytes, by the declared offsets */
  size_t buffer_bytes;
  void* user; /* as given at registration */
  const void*
      module; /* of the launched function, for simcuda_module_global; NULL for a handle of registration */
} simcuda_launch;

/* The body of a kernel: runs on its stream's thread. params[i] points at the bytes of parameter i in the
 * driver's copy. Device addresses are host addresses and are read and written directly. It must not call the
 * driver API. A C++ exception that leaves it becomes a device-side error (see simcuda_set_device_error). */
typedef void (*simcuda_kernel_function)(const simcuda_launch* launch, void** params);

typedef struct simcuda_parameter {
  size_t offset; /* in the parameter block */
  size_t size;   /* bytes */
} simcuda_parameter;

typedef struct simcuda_kernel {
  const char* name; /* copied */
  simcuda_kernel_function run;
  void* user;
  const simcuda_parameter* parameters; /* copied; ascending, not overlapping */
  size_t parameter_count;              /* or SIMCUDA_LAYOUT_OF_IMAGE */
} simcuda_kernel;

/* For the host form of a kernel that is compiled while the job runs: its parameters are laid out as in the
 * image that names it, which must be PTX or a cubin. There is no handle of registration then. */
#define SIMCUDA_LAYOUT_OF_IMAGE ((size_t)-1)

/* Registers a kernel. Returns 0 or a CUresult. Works before cuInit. The name may be registered several times
 * (with other layouts, say): look-ups by name find the first. *function is the handle of exactly this one, a
 * CUfunction that is valid in every context and for the life of the process. It bypasses the driver API: a
 * library in the driver's place has not seen it, and a job should load an image instead. function may be
 * NULL. */
int simcuda_register_kernel(const simcuda_kernel* kernel, struct CUfunc_st** function);

/* For kernels whose parameters own something. Called once for each accepted launch with its parameters, when
 * it has run for the last time: after the run of an ordinary launch; for a captured one, when no graph and no
 * queued work has it any more. Also called when the launch was skipped because its context had failed. It
 * runs on any thread, and must not call the driver API. simcuda_set_release returns 0 or a CUresult. */
typedef void (*simcuda_release_function)(void** params);
int simcuda_set_release(struct CUfunc_st* function, simcuda_release_function release);

/* An image of ours for cuModuleLoadData / cuLibraryLoadData is text, ended by a NUL. The first line is
 * SIMCUDA_IMAGE_MAGIC. Each further line is the name of one kernel (".kernel NAME PARAMETERS" for the one of
 * that name that takes this many, if several are registered), or ".global NAME BYTES" for a variable of the
 * module (zero at first; one per context; cuModuleGetGlobal and cuLibraryGetGlobal give its address). PTX
 * text and cubins are accepted as well: their entry points are bound to registered kernels of the same name
 * and the same layout of parameters; they have no variables. */
#define SIMCUDA_IMAGE_MAGIC "//simcuda image 1"

/* For kernels: returns the address of a variable of the launched function's module, NULL if it has none of
 * that name. *bytes (may be NULL): its size. */
void* simcuda_module_global(const simcuda_launch* launch, const char* name, size_t* bytes);

/* A tensor map as the cuTensorMapEncode functions were given it. The address is no plain word in the 128
 * bytes of a CUtensorMap, as on hardware: a scan of launch parameters does not see it. */
enum { SIMCUDA_TENSOR_TILED = 0, SIMCUDA_TENSOR_IM2COL = 1, SIMCUDA_TENSOR_IM2COL_WIDE = 2 };
typedef struct simcuda_tensor_map {
  size_t struct_bytes; /* set by the caller to sizeof(simcuda_tensor_map) */
  uint64_t address;
  uint64_t bytes; /* from the address to the end of the last element */
  int kind;       /* SIMCUDA_TENSOR_* */
  int data_type;  /* CUtensorMapDataType */
  unsigned int element_bits;
  unsigned int rank;
  uint64_t dim[5];    /* elements; the innermost first */
  uint64_t stride[5]; /* bytes; stride[0] is that of one element, 0 for types of less than a byte */
  uint32_t box[5];    /* tiled */
  uint32_t element_stride[5];
  int lower_corner[3], upper_corner[3];           /* im2col; im2col wide uses only the first */
  uint32_t channels_per_pixel, pixels_per_column; /* im2col */
} simcuda_tensor_map;

/* Decodes the CUtensorMap at `map` (a kernel's parameter, or in memory). Returns 0, or a CUresult if it is
 * none of ours. */
int simcuda_decode_tensor_map(const void* map, simcuda_tensor_map* decoded);

/* For kernels: finds the memory behind a texture object (a number, so a scan of parameters does not see it).
 * Returns 0 or a CUresult. */
int simcuda_texture_memory(uint64_t texture, uint64_t* address, uint64_t* bytes);

/* For kernels, like cudaGraphSetConditional on a device: sets the value by which a conditional node decides.
 * Returns 0 or a CUresult. */
int simcuda_set_condition(uint64_t handle, unsigned int value);

/* Fails the context of the kernel that is running on this thread, as a fault on a GPU would: `text` goes to
 * standard error, and calls of that context return CUDA_ERROR_LAUNCH_FAILED from then on. On a thread that
 * runs no kernel it fails the current context. */
void simcuda_set_device_error(const char* text);

/* Like simcuda_set_device_error, with the error code that those calls return: one of those that end a context
 * (sticky_errors.h; CUDA_ERROR_ASSERT is 710). For any other code returns CUDA_ERROR_INVALID_VALUE and does
 * nothing. Returns 0 if the context has failed, now or before: the first error stays. Returns
 * CUDA_ERROR_INVALID_CONTEXT if there is none. */
int simcuda_fail_device(int code, const char* text);

/* Returns the text of the device-side error of the current context ("" if none). Valid until the thread's
 * next call. */
const char* simcuda_device_error(void);

/* Sets one setting: `name` is that of the environment variable without SIMCUDA_ ("COPY_BANDWIDTH"), `value`
 * as it would stand there. Returns 0, or a CUresult (unknown name, bad value, or DEVICES and GRANULARITY
 * after cuInit). */
int simcuda_set(const char* name, const char* value);

/* Changes the capacity of one device; memory that is already allocated stays. Returns 0 or a CUresult. Called
 * after cuInit. */
int simcuda_set_memory(int device, uint64_t bytes);

/* Starts the counts of calls that the FAIL_* settings refer to at zero. */
void simcuda_reset_failures(void);

enum { SIMCUDA_DEVICES_MAX = 8 };
enum { SIMCUDA_HTOD = 0, SIMCUDA_DTOH = 1, SIMCUDA_DTOD = 2, SIMCUDA_HTOH = 3, SIMCUDA_DIRECTIONS = 4 };

typedef struct simcuda_stats {
  size_t struct_bytes; /* set by the caller to sizeof(simcuda_stats) */
  uint64_t physical_bytes[SIMCUDA_DEVICES_MAX];
  uint64_t peak_physical_bytes[SIMCUDA_DEVICES_MAX];
  uint64_t missed_accesses; /* touches of unmapped device memory that were let in (mode report) */
  uint64_t misuses; /* unmap or free under queued work let through (report), refused copies (strict) */
  uint64_t launches;
  uint64_t copies;
  uint64_t memsets;
  uint64_t copied_bytes[SIMCUDA_DIRECTIONS];
} simcuda_stats;

/* Fills *stats. Returns 0 or a CUresult. */
int simcuda_get_stats(simcuda_stats* stats);

/* Sets the peaks to the present use and every counter to zero. */
void simcuda_reset_stats(void);

uint64_t simcuda_missed_accesses(void);

/* The costs of calls by the profile of SIMCUDA_HARDWARE since the last reset. All times are stretched by
 * time_scale. */
enum { SIMCUDA_CALLS = 21 };
typedef struct simcuda_hardware_stats {
  size_t struct_bytes;             /* set by the caller to sizeof(simcuda_hardware_stats) */
  double time_scale;               /* 0 without a profile */
  uint64_t memory_lock_ns;         /* for which the memory lock was held */
  uint64_t longest_memory_call_ns; /* for which one call held it */
  uint64_t enqueues;               /* launches, copies, fills, event records and waits */
  uint64_t enqueue_wait_ns;        /* for which they waited for a lock */
  uint64_t longest_enqueue_wait_ns;
  uint64_t overruns; /* operations that this machine did more slowly than the profile */
  uint64_t overrun_ns;
  uint64_t calls[SIMCUDA_CALLS]; /* by call, see simcuda_call_name */
  uint64_t call_ns[SIMCUDA_CALLS];
} simcuda_hardware_stats;

/* Fills *stats. Returns 0 or a CUresult. */
int simcuda_get_hardware_stats(simcuda_hardware_stats* stats);
void simcuda_reset_hardware_stats(void);

/* Returns the processor time that the thread (the kernel's number) spent inside the driver's calls that have
 * a cost; it is the stand-in's, and no time of the program's own. */
uint64_t simcuda_thread_cpu_ns(int thread);

/* Returns the driver function that stands for a call in the statistics and in profiles, NULL beyond the last.
 */
const char* simcuda_call_name(int call);

/* Writes the log's buffered lines to its file now. */
void simcuda_flush_log(void);

/* Returns 1 if `address` lies in a reservation or allocation of any device, mapped or not. */
int simcuda_is_device_address(uint64_t address);

/* Returns 1 if device memory is closed to the host by memory protection keys (SIMCUDA_PROTECTION_KEYS): a
 * host thread's touch ends in SIGSEGV, a system call's in EFAULT. Kernels may touch it, and threads that a
 * kernel starts. 0 before cuInit. */
int simcuda_is_memory_closed(void);

/* Releases every operation on hold and holds none any more; or (hold != 0) holds each stream before its next
 * operation until it is called with 0. For tests that need queued work to stay queued. */
void simcuda_hold_streams(int hold);

#ifdef __cplusplus
}
#endif

#endif /* SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_SIMCUDA_H_ */
