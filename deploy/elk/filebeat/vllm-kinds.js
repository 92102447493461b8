// Made from rules/patterns.yaml by `make docs`; do not edit.
//
// For the `script` processor of Filebeat or Elastic Agent: names the kind of a vLLM log line in
// event.action, its weight in event.severity (1 info, 2 warning, 3 critical), its level in
// log.level. The first pattern that matches a line counts; of a record of several lines (a
// traceback) the first line that names a cause, else the first that names a consequence. Lines at
// INFO and DEBUG count only where the pattern may be logged so, and then at the beginning of the
// message.

var PROCESS = "(?:\\((\\w+)(?: rank=\\d+)? pid=\\d+\\) )?";
var LEVEL = "(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d)";
var HEAD = new RegExp("^" + PROCESS + LEVEL + " \\[?[\\w./-]+:\\d+\\] ?");
var COLOUR = /\x1b\[[\d;]*[A-Za-z]/g;
var KINDS = [
  {"kind": "oom_device", "severity": 2, "info": false, "consequence": false, "literals": ["CUDA out of memory. Tried", "HIP out of memory. Tried", "XPU out of memory. Tried"], "match": /(?:CUDA|HIP|XPU) out of memory\. Tried to allocate [\d.]+ [KMGT]?i?B/},
  {"kind": "oom_device", "severity": 2, "info": false, "consequence": false, "literals": ["NPU out of memory. "], "match": /NPU out of memory\. (?:\w+ )?[Tt]ried to allocate [\d.]+ [KMGT]?i?B/},
  {"kind": "oom_device", "severity": 2, "info": false, "consequence": false, "literals": ["CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDA out of memory occurred when warming up"], "match": /(?:CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|CUDA out of memory occurred when warming up)/},
  {"kind": "kv_cache_unavailable", "severity": 3, "info": false, "consequence": false, "literals": ["No available memory for the cache blocks", "less than desired GPU memory utilization", "larger than the available KV cache memory", "less than requested memory for kv", "that can be stored in KV cache"], "match": /No available memory for the cache blocks|Free memory on device .* less than desired GPU memory utilization|is larger than the available KV cache memory|is less than requested memory for kv|max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache/},
  {"kind": "engine_dead", "severity": 3, "info": true, "consequence": true, "literals": ["failed (engine dead)"], "match": /Request (?:[\w.:-]+) failed \(engine dead\)/},
  {"kind": "engine_dead", "severity": 3, "info": false, "consequence": true, "literals": ["EngineCore encountered a fatal error"], "match": /EngineCore encountered a fatal error/},
  {"kind": "engine_dead", "severity": 3, "info": false, "consequence": true, "literals": ["engine_core.run_busy_loop()"], "match": /engine_core\.run_busy_loop\(\)$/},
  {"kind": "engine_dead", "severity": 3, "info": false, "consequence": true, "literals": ["EngineDeadError", "is already dead", "Background loop has errored", "Background loop is stopped", "Got fatal signal from worker processes", "engine core exited unexpectedly", "AsyncLLM output_handler failed", "Engine loop is not running", "Engine loop has died", "EngineCore hit an exception", "AsyncLLM output_handler got an", "Engine background task failed", "Task finished unexpectedly. This should never happen"], "match": /\b(?:MQ|Async)?EngineDeadError\b|LLMEngine is already dead|Background loop (?:has errored|is stopped)|Got fatal signal from worker processes|engine core exited unexpectedly|AsyncLLM output_handler (?:failed|got an)|Engine loop (?:is not running|has died)|EngineCore hit an exception|Engine background task failed|Task finished unexpectedly\. This should never happen/},
  {"kind": "engine_proc_died", "severity": 3, "info": false, "consequence": true, "literals": ["died unexpectedly, shutting down client", "Engine core process ", "Engine core proc "], "match": /Engine core proc(?:ess|\(s\))? (?:\S+) died unexpectedly/},
  {"kind": "engine_proc_died", "severity": 3, "info": false, "consequence": true, "literals": ["Engine process (pid "], "match": /Engine process \(pid (?:\d+)\) died/},
  {"kind": "engine_proc_died", "severity": 3, "info": false, "consequence": true, "literals": [") died with exit code"], "match": /Process (?:\S+) \(PID: (?:\d+)\) died with exit code (?:-?\w+)/},
  {"kind": "engine_init_failed", "severity": 3, "info": false, "consequence": true, "literals": ["initialization failed. See root cause above", "EngineCore failed to start", "Engine core failed to start", "Engine process failed to start", "initialization failed due to an exception in a background process", "Timed out waiting for engine core processes to start", "Input socket thread died during startup"], "match": /Engine ?[Cc]ore initialization failed|(?:EngineCore|Engine core|Engine process) failed to start|WorkerProc initialization failed due to an exception|Timed out waiting for engine core processes to start|Input socket thread died during startup/},
  {"kind": "engine_init_failed", "severity": 3, "info": false, "consequence": false, "literals": ["Address already in use", "address already in use"], "match": /OSError: \[Errno (?:98|48)\] .*[Aa]ddress already in use|error while attempting to bind on address/},
  {"kind": "engine_init_failed", "severity": 3, "info": false, "consequence": false, "literals": ["RuntimeError: Insufficient space in "], "match": /RuntimeError: Insufficient space in (?:\S+) for .*?: (?:\d+) MiB required, (?:\d+) MiB free/},
  {"kind": "engine_init_failed", "severity": 3, "info": false, "consequence": false, "literals": ["validation error for ", "validation errors for "], "match": /ValidationError: \d+ validation errors? for (?:\w*Config)\b/},
  {"kind": "engine_init_failed", "severity": 3, "info": false, "consequence": false, "literals": ["SafetensorError: ", "Cannot find any model weights", "does not appear to have a file named"], "match": /(?:SafetensorError: .{0,120}|Cannot find any model weights|does not appear to have a file named \S+)/},
  {"kind": "worker_died", "severity": 3, "info": false, "consequence": false, "literals": [") died unexpectedly", "died unexpectedly (exit code", "died, exit code: ", "died unexpectedly, shutting down executor"], "match": /(?:Worker proc|RayWorkerProc) (?:\S+) died unexpectedly(?: \(exit code: (?:-?\w+)\))?|Worker (?:\S+) pid (?:\d+) died, exit code: (?:-?\w+)/},
  {"kind": "worker_died", "severity": 3, "info": false, "consequence": false, "literals": ["A worker died or was killed while executing a task"], "match": /A worker died or was killed while executing a task/},
  {"kind": "worker_exception", "severity": 3, "info": false, "consequence": false, "literals": ["WorkerProc hit an exception", "WorkerProc failed to start", "WorkerProc failed.", "RayWorkerProc failed: ", "Error executing method "], "match": /WorkerProc hit an exception|WorkerProc failed(?: to start)?\b|RayWorkerProc failed: |Error executing method /},
  {"kind": "worker_exception", "severity": 3, "info": false, "consequence": false, "literals": ["Dumping input data for V1 LLM engine", "Dumping input data. "], "match": /Dumping input data for V1 LLM engine|Dumping input data\. /},
  {"kind": "ray_actor_died", "severity": 3, "info": false, "consequence": false, "literals": ["ActorDiedError", "ActorUnavailableError", "WorkerCrashedError", "RayActorError"], "match": /\b(?:ActorDiedError|ActorUnavailableError|WorkerCrashedError|RayActorError): /},
  {"kind": "ray_actor_died", "severity": 3, "info": false, "consequence": false, "literals": ["Worker exit type: "], "match": /Worker exit type: (?:\w+)/},
  {"kind": "host_oom", "severity": 3, "info": false, "consequence": false, "literals": ["due to the node running low on memory"], "match": /killed due to the node running low on memory/},
  {"kind": "ipc_stall", "severity": 2, "info": true, "consequence": false, "literals": ["No available shared memory broadcast block found", "No available block found in"], "match": /No available (?:shared memory broadcast )?block found in (?:\d+) seconds?/},
  {"kind": "rpc_timeout", "severity": 3, "info": false, "consequence": false, "literals": ["RPC call to ", "in acquire_read", "Execution of method ", "Engine iteration timed out"], "match": /TimeoutError: RPC call to (?:\w+) timed out|Engine iteration timed out|shm_broadcast\.py", line \d+, in acquire_read$|Execution of method \S+ timed out/, "unless": /WARNING/},
  {"kind": "collective_timeout", "severity": 3, "info": false, "consequence": false, "literals": ["Watchdog caught collective operation timeout"], "match": /Watchdog caught collective operation timeout: Work(?:\w+)\(SeqNum=(?:\d+), OpType=(?:\w+)(?:, NumelIn=\d+, NumelOut=\d+)?, Timeout\(ms\)=(?:\d+)\)(?: ran for (?:\d+) milliseconds)?/},
  {"kind": "collective_timeout", "severity": 3, "info": false, "consequence": false, "literals": ["RuntimeError: Barrier "], "match": /RuntimeError: Barrier (?:departure )?timed out after (?:[\d.]+) seconds/},
  {"kind": "collective_timeout", "severity": 3, "info": false, "consequence": false, "literals": [" dispatch timeout"], "match": /Process group work (?:\w+), seq_num (?:\d+) dispatch timeout\.(?: device (?:\d+))?/},
  {"kind": "collective_abort", "severity": 3, "info": false, "consequence": false, "literals": ["watchdog thread terminated with exception", "Process group watchdog thread terminated"], "match": /(?:HCCL|NCCL|Process group) watchdog thread terminated with exception/, "unless": /CUDA error: /},
  {"kind": "collective_error", "severity": 3, "info": false, "consequence": false, "literals": ["NCCL error: ", "NCCL error in: ", "DistBackendError"], "match": /(?:RuntimeError|DistBackendError): NCCL error(?: in: [^,]+,|:) (?:[^,(]*[^,( ])|DistBackendError: (?:[^,]+)/},
  {"kind": "collective_error", "severity": 3, "info": false, "consequence": false, "literals": ["RuntimeError: HCCL error: "], "match": /RuntimeError: HCCL error: (?:.{1,120})/},
  {"kind": "device_ecc", "severity": 3, "info": false, "consequence": false, "literals": ["uncorrectable ECC error", "Uncorrectable ECC error"], "match": /[Uu]ncorrectable ECC error/},
  {"kind": "device_lost", "severity": 3, "info": false, "consequence": false, "literals": ["GPU is lost", "GPU has fallen off the bus", "CUDA-capable device(s) is/are busy or unavailable", "no CUDA-capable device is detected"], "match": /GPU is lost|GPU has fallen off the bus|no CUDA-capable device is detected/},
  {"kind": "nvlink_fault", "severity": 3, "info": false, "consequence": false, "literals": ["uncorrectable NVLink error"], "match": /uncorrectable NVLink error/},
  {"kind": "device_fault", "severity": 3, "info": false, "consequence": false, "literals": ["illegal memory access", "unspecified launch failure", "device-side assert triggered", "misaligned address", "illegal instruction was encountered", "hardware stack error", "invalid program counter", "CUBLAS_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_EXECUTION_FAILED", "HSA_STATUS_ERROR", "the launch timed out and was terminated", "CUDA error: unknown error", "CUDA error: an internal"], "match": /(?:illegal memory access|launch timed out|unknown error|unspecified launch failure|device-side assert|misaligned address|illegal instruction|hardware stack error|invalid program counter|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED|HSA_STATUS_ERROR\w*)/},
  {"kind": "output_corrupt", "severity": 3, "info": true, "consequence": false, "literals": [", Corrupted: "], "match": /Engine \d+: .{0,400}?, Corrupted: (?:[1-9]\d*) reqs/},
  {"kind": "output_corrupt", "severity": 3, "info": false, "consequence": false, "literals": ["NaNs detected in logits"], "match": /NaNs detected in logits/},
  {"kind": "preemption", "severity": 2, "info": false, "consequence": false, "literals": ["is preempted by PreemptionMode"], "match": /Sequence group (?:\S+) is preempted by PreemptionMode\.(?:\w+)(?:.* total_num_cumulative_preemption=(?:\d+))?/},
  {"kind": "request_error_client", "severity": 1, "info": false, "consequence": false, "literals": ["maximum context length", "is longer than the maximum model length"], "match": /maximum context length(?: is)? (?:\d+)|exceeds model's maximum context length|is longer than the maximum model length/},
  {"kind": "request_error_client", "severity": 1, "info": false, "consequence": false, "literals": ["Error in preprocessing prompt inputs", "RequestValidationError caught", "HTTPException caught. Request id", "Error with model "], "match": /Error in preprocessing prompt inputs|RequestValidationError caught|HTTPException caught\. Request id|Error with model (?:error=)?(?:ErrorResponse|object=)/},
  {"kind": "request_error_server", "severity": 2, "info": false, "consequence": true, "literals": ["completion stream generator", " stream generator.", "Error in stream generator", "Exception in ASGI application", "Engine Exception caught. Request id", "failed with an internal error during generation", "Error in generation: ", "Error in message stream converter", "Error in token generation stream"], "match": /Error in (?:\w+ )*stream (?:generator|converter)|Exception in ASGI application|Engine Exception caught\. Request id|failed with an internal error during generation|Error in generation: |Error in token generation stream/},
  {"kind": "request_error_server", "severity": 2, "info": true, "consequence": false, "literals": ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Time"], "match": /[\w.:\[\]-]+ - "(?:POST|GET|PUT) (?:\/(?:v\d|inference|generate|pooling|classify|score|rerank|embed|tokenize|invocations)[^ ?"]*)[^ "]* HTTP\/[\d.]+" (?:5\d\d) /},
  {"kind": "request_error_client", "severity": 1, "info": true, "consequence": false, "literals": ["400 Bad Request", "413 Request Entity Too Large", "413 Content Too Large", "422 Unprocessable"], "match": /[\w.:\[\]-]+ - "(?:POST|GET|PUT) (?:\/(?:v\d|inference|generate|pooling|classify|score|rerank|embed|tokenize|invocations)[^ ?"]*)[^ "]* HTTP\/[\d.]+" (?:4\d\d) /},
  {"kind": "server_exit", "severity": 1, "info": true, "consequence": false, "literals": ["Finished server process ["], "match": /Finished server process \[(?:\d+)\]/},
  {"kind": "server_exit", "severity": 2, "info": false, "consequence": false, "literals": ["ExecMainCode=", "ExecMainStatus="], "match": /^(?:ExecMainCode=(?:[1-3])|ExecMainStatus=(?:\d+))$/},
  {"kind": "server_exit", "severity": 2, "info": false, "consequence": false, "literals": ["Main process exited, code="], "match": /(?:\S+\.service): Main process exited, code=(?:\w+), status=(?:\d+)/},
  {"kind": "server_exit", "severity": 2, "info": false, "consequence": false, "literals": [" exited with code "], "match": /^(?:[\w.-]+) exited with code (?:\d+)/},
  {"kind": "host_oom", "severity": 3, "info": false, "consequence": false, "literals": ["Failed with result 'oom-kill'", "has been killed by the OOM killer"], "match": /(?:\S+\.service): (?:Failed with result 'oom-kill'|A process of this unit has been killed by the OOM killer)/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Initializing a V1 LLM engine", "Initializing an LLM engine", "Starting vLLM API server", "Starting vLLM server on"], "match": /Initializing an? (?:V1 )?LLM engine(?: \(v(?:[\w.+-]+)\))?|Starting vLLM (?:API )?server/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["init engine (profile", "Graph capturing finished in "], "match": /init engine \(profile, create kv cache, warmup model\) took (?:[\d.]+) s|Graph capturing finished in (?:[\d.]+) secs(?:, took (?:[\d.]+) GiB)?/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Available KV cache memory: "], "match": /Available KV cache memory: (?:-?[\d.]+) GiB/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["KV cache size: "], "match": /[A-Z]+ KV cache size: (?:[\d,]+) tokens(?:, Maximum concurrency for [\d,]+ tokens per request: (?:[\d.]+)x)?/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Maximum concurrency for "], "match": /Maximum concurrency for [\d,]+ tokens per request: (?:[\d.]+)x/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Loading weights took ", "Starting to load model "], "match": /Loading weights took (?:[\d.]+) seconds|Starting to load model /},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Application startup complete"], "match": /Application startup complete/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["API server: shutdown triggered", "Shutting down FastAPI HTTP server", "shutting down FastAPI HTTP server", "INFO:     Shutting down", "Waiting for connections to close", "Waiting for application shutdown", "Application shutdown complete", "trigger received signal="], "match": /(?:\[shutdown\] )?(?:API server: shutdown triggered|EngineCore: trigger received signal=(?:\w+)|(?:API server: )?[Ss]hutting down FastAPI HTTP server|Shutting down$|Waiting for connections to close|Waiting for application shutdown|Application shutdown complete)/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["seconds to fall asleep", "Sleep mode freed ", "CuMemAllocator: sleep freed"], "match": /It took [\d.]+ seconds to fall asleep|Sleep mode freed (?:[\d.]+) GiB memory, (?:[\d.]+) GiB memory is still in use|CuMemAllocator: sleep freed/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["seconds to wake up tags"], "match": /It took [\d.]+ seconds to wake up tags [\[{](?:[^\]}]*)[\]}]/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Parent process exited, terminating worker", "WorkerProc shutting down"], "match": /Parent process exited, terminating worker|WorkerProc shutting down/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["POST /pause", "POST /resume"], "match": /[\w.:\[\]-]+ - "POST \/(?:pause|resume)[^"]*" 200 OK/},
  {"kind": "lifecycle", "severity": 1, "info": true, "consequence": false, "literals": ["Reloading weights in"], "match": /Reloading weights in/},
  {"kind": "context", "severity": 1, "info": false, "consequence": false, "literals": ["NCCL WARN "], "match": /(?:[\w.-]+):(?:\d+):\d+ \[(?:\d+)\] .*NCCL WARN (?:.{1,160})/},
  {"kind": "npu_error", "severity": 3, "info": false, "consequence": false, "literals": [" function error: ", "ACL stream synchronize failed", "error code is 507", "error code is 207", "error code:507"], "match": /(?:(?:NPU|OPS|HCCL) function error: .{0,120}?, error code is |ACL stream synchronize failed, error code:|error code is |error code:)(?:\d{1,6})\b/},
  {"kind": "npu_error", "severity": 3, "info": false, "consequence": false, "literals": ["runtime result = "], "match": /runtime result = (?:\d{6})\b/},
  {"kind": "device_fault", "severity": 3, "info": false, "consequence": false, "literals": ["there is a sdma error", "System Direct Memory Access (DMA) hardware execution error"], "match": /there is a sdma error|System Direct Memory Access \(DMA\) hardware execution error/},
  {"kind": "hccl_timeout", "severity": 3, "info": false, "consequence": false, "literals": ["fftsplus task timeout", "stuck notify num:"], "match": /fftsplus task timeout|stuck notify num:/},
  {"kind": "npu_error", "severity": 3, "info": false, "consequence": false, "literals": ["EI00", "EI99", "EJ00", "EL00", "EL99", "EZ99", "EH99", "EE99", "E199", "E300", "E390", "(E1", "(E2", "(E3", "(E4", "(E5", "(E6", "(E8", "(E9", "ERR00", "ERR01", "ERR02", "ERR03", "ERR99"], "match": /(?:^|[\s(:])(?:E[A-Z]\d{4}|E[1-9]\d{4})(?:\)?:|\[PID)|\) (?:ERR\d{5}) /},
  {"kind": "device_lost", "severity": 3, "info": false, "consequence": false, "literals": ["lost heartbeat"], "match": /Device\[(?:\d+)\] lost heartbeat|reason=\[?lost heartbeat/},
  {"kind": "", "severity": 1, "info": false, "consequence": false, "literals": ["The error from device(", "halCqReportRecv failed", "ernel execute failed, device_id=", "open device "], "match": /The error from device\(|halCqReportRecv failed|ernel execute failed, device_id=|open device \d+ failed/},
  {"kind": "device_ecc", "severity": 3, "info": false, "consequence": false, "literals": ["HBM MULTI BIT ECC", "UCE ERROR", "SUSPECT MEM ERROR", "suspect memory error", "multi bit ecc", "HBM multi-bit ECC"], "match": /hbm multi[ -]?bit ecc|UCE ERROR|suspect mem(?:ory)? error/i},
  {"kind": "", "severity": 1, "info": true, "consequence": false, "literals": ["hcom init by file success", "HcclCommInitRootInfo success", "deviceLogicId["], "match": /hcom init by file success|HcclCommInitRootInfo success|deviceLogicId\[/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["and specific port["], "match": /listen on ip\[[^\]]*\] and specific port\[(?:\d+)\] fail/},
  {"kind": "", "severity": 1, "info": false, "consequence": false, "literals": ["hcclRet -> "], "match": /hcclRet -> (?:\d+)/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["wait socket establish timeout"], "match": /wait socket establish timeout, role\[(?:\d+)\] rank\[(?:\d+)\] timeout\[(?:\d+)/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["connected p2p timeout"], "match": /connected p2p timeout, timeout:(?:\d+) s\. local logicDevid:(?:\d+), remote physic id:(?:\d+)/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["LINK_ERROR_INFO"], "match": /LINK_ERROR_INFO/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["the connection failure between this device and target device", "Alloc transports failed"], "match": /the connection failure between this device and target device|Alloc transports failed/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["cqe err status["], "match": /cqe err status\[(?:\d+)\]/},
  {"kind": "hccl_timeout", "severity": 3, "info": false, "consequence": false, "literals": ["Task from HCCL run failed", "base information is streamID", "para information is notify id"], "match": /Task from HCCL run failed|base information is streamID:\[(?:\d+)\], taskID\[(?:\d+)\], taskType\[(?:[^\]]+)\]|para information is notify id:\[[^\]]*\].*remote rank:\[(?:\d+)\]/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["Heartbeat Lost Occurred"], "match": /server:(?:[\w.:%-]+\/\d+), server:(?:[\w.:%-]+\/\d+), Heartbeat Lost Occurred/},
  {"kind": "hccl_link", "severity": 3, "info": false, "consequence": false, "literals": ["[Result]errNo[0x"], "match": /\[Result\]errNo\[(?:0x[0-9a-f]+)\] hcclComm (?:[\w ]+) error/},
  {"kind": "npu_error", "severity": 3, "info": false, "consequence": false, "literals": ["halMemAlloc failed"], "match": /halMemAlloc failed.*?drvRetCode=(?:\d+)(?:, device_id=(?:\d+))?/},
  {"kind": "npu_error", "severity": 3, "info": false, "consequence": false, "literals": ["Task run failed, device_id="], "match": /Task run failed, device_id=(?:\d+), stream_id=(?:\d+), task_id=(?:\d+).*?errType=(?:0x[0-9a-f]+)(?:\((?:[^)]*)\))?/}
];

function has(text, literals) {
  for (var i = 0; i < literals.length; i++) {
    if (text.indexOf(literals[i]) >= 0) return true;
  }
  return literals.length === 0;
}

function kind(text) {
  var head = HEAD.exec(text);
  var level = head ? head[2] : "";
  var quiet = level === "INFO" || level === "DEBUG";
  var body = head ? text.slice(head[0].length) : text;
  for (var i = 0; i < KINDS.length; i++) {
    var known = KINDS[i];
    if (!has(text, known.literals) || (quiet && !known.info)) continue;
    var found = known.match.exec(text);
    if (!found || (known.unless && known.unless.test(text))) continue;
    if (quiet && body.indexOf(found[0]) !== 0) continue;
    return {kind: known.kind, severity: known.severity, level: level, cause: !known.consequence};
  }
  return {kind: "", severity: 0, level: level, cause: false};
}

function record(text) {
  var lines = text.replace(COLOUR, "").split("\n");
  var best = kind(lines[0]);
  for (var i = 1; i < lines.length && i < 500 && !best.cause; i++) {
    var next = kind(lines[i]);
    if (next.cause || (next.kind && !best.kind)) {
      next.level = best.level || next.level;
      best = next;
    }
  }
  return best;
}

function process(event) {
  var text = event.Get("message");
  if (typeof text !== "string") return;
  var found = record(text);
  if (found.level) event.Put("log.level", found.level.toLowerCase());
  if (found.kind) {
    event.Put("event.action", found.kind);
    event.Put("event.severity", found.severity);
  }
}
