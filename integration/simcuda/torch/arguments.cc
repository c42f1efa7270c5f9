// Describing a call and building its host-side stack.
#include "integration/simcuda/torch/arguments.h"

#include <ATen/Tensor.h>

#include <bit>

namespace simcuda::ops {
namespace {

// Words of a key that say what follows; far from any plausible size, so that keys cannot be confused.
enum Mark : int64_t {
  kMarkNone = INT64_MIN,
  kMarkUndefined,
  kMarkCuda,
  kMarkHost,
  kMarkList,
  kMarkInt,
  kMarkDouble,
  kMarkBool,
  kMarkComplex,
  kMarkText,
  kMarkNumber,
  kMarkOther,
};

// Writes the key of one call.
class Describer {
 public:
  Describer(const OpFacts& facts, CallDescription* description) : facts_(facts), out_(*description) {}

  void Argument(const c10::IValue& value, const ArgumentFacts& argument) {
    if (value.isTensor()) {
      Tensor(value.toTensor());
    } else if (value.isNone()) {
      Put(kMarkNone);
    } else if (value.isInt()) {
      Number(kMarkInt, value.toInt(), argument);
    } else if (value.isBool()) {
      Number(kMarkBool, value.toBool(), argument);
    } else if (value.isDouble()) {
      // A double decides a shape only where no tensor does; a changing learning rate must not be a new signature.
      Put(kMarkDouble);
      if (facts_.values_shape_it) Put(std::bit_cast<int64_t>(value.toDouble()));
    } else if (value.isList()) {
      List(value, argument);
    } else {
      Rare(value);
    }
  }

 private:
  void Put(int64_t word) { out_.key.push_back(word); }

  void Number(Mark mark, int64_t number, const ArgumentFacts& argument) {
    Put(mark);
    if (!argument.is_number || facts_.values_shape_it) Put(number);
  }

  void Tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return Put(kMarkUndefined);
    if (tensor.is_cuda()) {
      Put(kMarkCuda);
      Device(tensor.device());
      Storage(tensor);
    } else {
      Put(kMarkHost);
      HostTensor(tensor);
    }
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    Put(static_cast<int64_t>(tensor.scalar_type()) | int64_t{tensor.is_conj()} << 8 |
        int64_t{tensor.is_neg()} << 9 | int64_t{impl->is_wrapped_number()} << 10 |
        int64_t{tensor.dim()} << 16);
    for (int64_t size : tensor.sizes()) Put(size);
    for (int64_t stride : tensor.strides()) Put(stride);
  }

  // Sharing is part of the signature: results may share with arguments, and ops check arguments for overlap.
  void Storage(const at::Tensor& tensor) {
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    size_t place = 0;
    while (place < storages_.size() && storages_[place] != storage) ++place;
    if (place == storages_.size()) {
      storages_.push_back(storage);
      Put(-1);
    } else {
      Put(static_cast<int64_t>(place));
      Put(tensor.storage_offset());
    }
  }

  void Device(c10::Device device) {
    const c10::DeviceIndex index = device.index();
    TORCH_CHECK(!tensor_device_ || *tensor_device_ == index,
                "Expected all tensors to be on the same device, but found at least two devices, cuda:",
                static_cast<int>(*tensor_device_), " and cuda:", static_cast<int>(index),
                "! (when checking arguments of ", facts_.name, ")");
    tensor_device_ = index;
    out_.device = index;
  }

  void HostTensor(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.dim() == 0 || facts_.takes_host_tensors,
                "Expected all tensors to be on the same device, but found at least two devices, cuda:",
                tensor_device_ ? static_cast<int>(*tensor_device_) : 0, " and ", tensor.device(),
                "! (when checking arguments of ", facts_.name, ")");
  }

  void List(const c10::IValue& value, const ArgumentFacts& argument) {
    Put(kMarkList);
    const c10::ArrayRef<c10::IValue> generic =
        value.isTensorList() || value.isIntList() || value.isDoubleList() || value.isBoolList()
            ? c10::ArrayRef<c10::IValue>()
            : value.toListRef();
    if (value.isIntList()) {
      const auto list = value.toIntVector();
      Put(static_cast<int64_t>(list.size()));
      for (int64_t number : list) Put(number);
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      Put(static_cast<int64_t>(list.size()));
      for (const at::Tensor& tensor : list) Tensor(tensor);
    } else if (value.isBoolList()) {
      const auto list = value.toBoolList();
      Put(static_cast<int64_t>(list.size()));
      for (bool flag : list) Put(flag);
    } else if (value.isDoubleList()) {
      Put(static_cast<int64_t>(value.toDoubleVector().size()));
    } else {
      Put(static_cast<int64_t>(generic.size()));
      for (const c10::IValue& element : generic) {
        if (element.isTensor() && element.toTensor().defined()) RecordMask(element.toTensor());
        Argument(element, argument);
      }
    }
  }

  void RecordMask(const at::Tensor& tensor) {
    if (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte) out_.has_mask = true;
  }

  void Rare(const c10::IValue& value) {
    if (value.isString()) {
      Put(kMarkText);
      for (char c : value.toStringRef()) Put(c);
    } else if (value.isComplexDouble()) {
      Put(kMarkComplex);
    } else if (value.isDevice()) {
      const c10::Device device = value.toDevice();
      Put(kMarkOther);
      if (device.is_cuda() && device.has_index() && !out_.device) out_.device = device.index();
    } else {
      Put(kMarkOther);
    }
  }

  const OpFacts& facts_;
  CallDescription& out_;
  std::optional<c10::DeviceIndex> tensor_device_;
  c10::SmallVector<const c10::StorageImpl*, 8> storages_;
};

// Builds the host-side form of values.
class Translator {
 public:
  Translator(AliasSet* aliases, std::vector<at::Tensor>* written) : aliases_(*aliases), written_(written) {}

  c10::IValue Argument(const c10::IValue& value, bool written) {
    if (value.isTensor()) return Tensor(value.toTensor(), written);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) list.push_back(Tensor(tensor, written));
      return list;
    }
    if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
    if (value.isGenerator()) return {};
    if (value.isList() && !value.isIntList() && !value.isBoolList() && !value.isDoubleList())
      return List(value);
    return value;
  }

 private:
  at::Tensor Tensor(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      TORCH_CHECK(!written, "Expected the tensor to be written to be on a CUDA device, but it is on ",
                  tensor.device());
      at::Tensor copy = tensor.clone();  // the host may change or free it after the call
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
        copy.unsafeGetTensorImpl()->set_wrapped_number(true);
      return copy;
    }
    at::Tensor alias = aliases_.Alias(tensor);
    if (written && written_ != nullptr) written_->push_back(alias);
    return alias;
  }

  c10::IValue List(const c10::IValue& value) {
    const c10::ArrayRef<c10::IValue> elements = value.toListRef();
    bool has_tensors = false;
    for (const c10::IValue& element : elements) has_tensors = has_tensors || element.isTensor();
    if (!has_tensors) return value;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : elements) {
      if (element.isTensor()) {
        list.push_back(Tensor(element.toTensor(), false));
      } else {
        list.push_back(std::nullopt);
      }
    }
    return list;
  }

  AliasSet& aliases_;
  std::vector<at::Tensor>* written_;
};

const c10::IValue* FirstArgument(const OpFacts& facts, const c10::Stack& stack) {
  return stack.data() + stack.size() - facts.arguments.size();
}

}  // namespace

void Describe(const OpFacts& facts, const c10::Stack& stack, CallDescription* description) {
  description->key.clear();
  description->device.reset();
  description->has_mask = false;
  Describer describer(facts, description);
  const c10::IValue* arguments = FirstArgument(facts, stack);
  for (size_t i = 0; i < facts.arguments.size(); ++i) describer.Argument(arguments[i], facts.arguments[i]);
}

std::vector<at::Tensor> WrittenTensors(const OpFacts& facts, const c10::Stack& stack) {
  std::vector<at::Tensor> written;
  const c10::IValue* arguments = FirstArgument(facts, stack);
  for (size_t i = 0; i < facts.arguments.size(); ++i) {
    if (!facts.arguments[i].written) continue;
    if (arguments[i].isTensor() && arguments[i].toTensor().defined() && arguments[i].toTensor().is_cuda()) {
      written.push_back(arguments[i].toTensor());
    } else if (arguments[i].isTensorList()) {
      for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
        if (tensor.defined() && tensor.is_cuda()) written.push_back(tensor);
      }
    }
  }
  return written;
}

c10::Stack BuildHostStack(const OpFacts& facts, const c10::Stack& stack, AliasSet* aliases,
                          std::vector<at::Tensor>* written_aliases) {
  Translator translator(aliases, written_aliases);
  const c10::IValue* arguments = FirstArgument(facts, stack);
  c10::Stack host;
  host.reserve(facts.arguments.size() + 2);
  for (size_t i = 0; i < facts.arguments.size(); ++i) {
    host.push_back(translator.Argument(arguments[i], facts.arguments[i].written));
  }
  return host;
}

}  // namespace simcuda::ops
