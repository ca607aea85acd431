// A library of one custom operator, tests.ops.SoftClip(x) = x / (1 + |x|), for test_custom_ops_built.py.
#include <cmath>

#include "onnxruntime_c_api.h"

namespace {
const OrtApi* api = nullptr;

// What fails is told by ONNX Runtime when the outputs are compared.
void ignore(OrtStatus* status) {
  if (status != nullptr) api->ReleaseStatus(status);
}

void Compute(void*, OrtKernelContext* context) {
  const OrtValue* input = nullptr;
  ignore(api->KernelContext_GetInput(context, 0, &input));
  OrtTensorTypeAndShapeInfo* info = nullptr;
  ignore(api->GetTensorTypeAndShape(input, &info));
  size_t rank = 0, count = 0;
  int64_t dims[8];
  ignore(api->GetDimensionsCount(info, &rank));
  ignore(api->GetDimensions(info, dims, rank));
  ignore(api->GetTensorShapeElementCount(info, &count));
  api->ReleaseTensorTypeAndShapeInfo(info);
  OrtValue* output = nullptr;
  ignore(api->KernelContext_GetOutput(context, 0, dims, rank, &output));
  void *x = nullptr, *y = nullptr;
  ignore(api->GetTensorMutableData(const_cast<OrtValue*>(input), &x));
  ignore(api->GetTensorMutableData(output, &y));
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float*>(x)[i];
    static_cast<float*>(y)[i] = value / (1 + std::fabs(value));
  }
}

struct SoftClip : OrtCustomOp {
  SoftClip() : OrtCustomOp{} {
    version = 16;  // Old enough for any ONNX Runtime that placer takes.
    CreateKernel = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*) -> void* { return nullptr; };
    GetName = [](const OrtCustomOp*) { return "SoftClip"; };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    GetInputType = GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
    GetInputTypeCount = GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
    KernelCompute = Compute;
    KernelDestroy = [](void*) {};
    GetInputCharacteristic = GetOutputCharacteristic = [](const OrtCustomOp*, size_t) {
      return INPUT_OUTPUT_REQUIRED;
    };
    GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  }
};
}  // namespace

extern "C" OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  static SoftClip op;
  static OrtCustomOpDomain* domain = nullptr;
  api = base->GetApi(16);
  if (domain == nullptr) {
    if (OrtStatus* status = api->CreateCustomOpDomain("tests.ops", &domain)) return status;
    if (OrtStatus* status = api->CustomOpDomain_Add(domain, &op)) return status;
  }
  return api->AddCustomOpDomain(options, domain);
}
