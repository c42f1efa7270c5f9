// The facts that `spillway doctor` finds, as plain data: gathered by machine_facts, driver_facts,
// torch_facts, link_rates and directory_facts, then judged, and shown as text or JSON. It has no call that
// fails or waits; it is used on one thread. A part that could not be found has a `problem` as text; otherwise
// its fields count.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_FACTS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_FACTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "integration/cli/doctor/disk_layers.h"
#include "integration/engine/device_check.h"
#include "integration/engine/start_check.h"
#include "integration/settings/conf_files.h"
#include "integration/settings/node_ranks.h"
#include "io/store/disk_rate.h"

namespace spillway::integration {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct InstallationFacts {
  std::string directory;             // folder of the libraries
  std::vector<std::string> missing;  // paths of libraries that do not exist
  std::string engine_problem;        // why the engine cannot be opened; empty: it can
  std::vector<std::string> served;   // minors of PyTorch, "2.11"
};

struct SystemFacts {
  std::string unserved;  // why this kind of machine is not served; empty: it is
  std::string kernel;    // "6.1.0"
  std::string architecture;
  std::string cpu;        // model; empty: not known
  int cpus = 0;           // that this process may run on; 0: not known
  double cpu_quota = 0;   // CPUs' worth of time that the control group gives; 0: no limit
  int numa_nodes = 0;     // 0: not known
  std::string container;  // "docker"; empty: no sign of one
  HostMemory memory;
};

struct LimitFacts {
  uint64_t locked_bytes = kUnlimited;  // soft limits
  uint64_t open_files = kUnlimited;
  uint64_t file_bytes = kUnlimited;
  uint64_t address_bytes = kUnlimited;
  std::string io_uring_problem;  // why a ring cannot be created; empty: it can
  bool membarrier = false;
  uint64_t memory_maps = 0;    // vm.max_map_count; 0: not known
  uint64_t shared_memory = 0;  // size of /dev/shm; 0: there is none
  uint64_t free_shared_memory = 0;
};

// Bytes copied in one direction.
struct CopyRate {
  uint64_t bytes = 0;
  double seconds = 0;
  double PerSecond() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

struct MeasuredLink {
  std::string problem = "the GPU is not used";  // why it was not measured; empty: it was
  uint64_t buffer_bytes = 0;                    // of one copy
  CopyRate in, out;                             // to the GPU and from it, each direction alone
  CopyRate both_in, both_out;
};

struct DeviceFacts {
  std::string problem;  // of the driver's answers
  std::string name;
  uint64_t bytes = 0;       // 0: not known
  uint64_t free_bytes = 0;  // now, with a context of ours in it; counts if there is no problem
  ComputeCapability capability = 0;
  bool maps = false;       // virtual memory management: mapping piece by piece
  bool host_numa = false;  // the driver can create memory of a NUMA node
  int numa_node = -1;      // the nearest of the host's; -1: not known
  MeasuredLink link;
};

struct DriverFacts {
  std::string problem;  // why there is no usable driver; empty: there is
  std::string advice;
  std::string path;       // of the library; empty: not known
  bool by_loader = true;  // ld.so finds it by its name, or the user named it
  int version = 0;        // 13000; 0: not known
  bool stand_in = false;  // no kernel module of NVIDIA's, so the figures are not those of a GPU
  std::vector<DeviceFacts> devices;
};

struct TorchFacts {
  std::string python;   // the Python that was asked; empty: there is none
  bool named = false;   // named by the user, or the Python that called
  std::string problem;  // why there is no answer, or no PyTorch
  std::string version;  // "2.11.0+cu130"
  std::string minor;    // "2.11"
  std::string cuda;     // "13.0"; empty: built without
  std::string package;  // folder of the installed package `spillway` in that Python; empty: none
  bool loads = false;   // that Python has libspillway.so in it, as it is started here
};

// One directory that a job would spill to.
struct DiskFacts {
  DirectoryFacts start;        // what the check at the start sees
  uint64_t cap_bytes = 0;      // of its entry; 0: none
  uint64_t reserve_bytes = 0;  // bytes left free there
  std::string file_system;     // "ext4"
  std::string known;           // what spilling to that kind means, for people; empty: nothing special
  Encryption encryption = Encryption::kNotKnown;
  std::string drive;            // the whole disk's name, "nvme0n1"; empty: not known
  uint64_t file_system_id = 0;  // equal for directories of one file system
  bool direct_io = false;
  std::string cached_because;  // why transfers are not direct
  bool io_uring = false;
  std::string io_uring_problem;
  std::string rate_problem;  // why no rate was measured; empty: it was
  io::DiskRates rates;

  // Returns the bytes that could be spilled there now.
  uint64_t SpaceBytes() const;
};

// The settings of the user, by option, variable, key in PyTorch's variable, or file.
struct GivenSettings {
  std::map<std::string, std::string> values;  // by name, "host_memory"
  std::shared_ptr<const ConfFiles> files;     // /etc/spillway.conf and the user's; null: not read
  std::string kept_conf;       // entries of PyTorch's variable that are PyTorch's own, "max_split_size_mb:64"
  bool named_in_conf = false;  // PyTorch's variable names our backend
  bool off = false;            // SPILLWAY=off
};

// A setting and its origin, for people.
struct SettingOrigin {
  std::string name, value;
  std::string source;  // "SPILLWAY_HOST_MEMORY", "/etc/spillway.conf:3: host_memory"
  std::string limit;   // of the operator; empty: none
  std::string limit_source;
};

struct DoctorFacts {
  InstallationFacts installation;
  SystemFacts system;
  TorchFacts torch;
  bool installation_only = false;  // the facts below were not collected
  DriverFacts driver;
  LimitFacts limits;
  std::vector<DiskFacts> disks;
  bool disk_rates = true;   // false: not asked for
  std::string disk_unused;  // why a job with these settings would not spill to a disk; empty: it would
  std::optional<MountFacts> faster_mount;  // than that of the default directory, by the kind of its drive
  bool dirs_named = false;                 // the disks are those of the setting, not the default one
  uint64_t rated_writes = 0;  // bytes that an SSD endures, by its maker (--ssd-writes); 0: not known
  NodeRanks ranks;
  GivenSettings given;
  std::vector<SettingOrigin> origins;                     // of the given settings
  std::optional<Size> most_gpu_memory, most_host_memory;  // limits of the operator
  std::vector<FileProblem> files;                         // settings whose file cannot be used as it must be
  std::string refusal;                // why a job with these settings would be refused at its start
  std::vector<std::string> warnings;  // warnings of a start that goes on
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_FACTS_H_
