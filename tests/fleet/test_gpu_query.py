"""GPUs out of what nvidia-smi and NVML say, on good days and bad ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from apps.fleet.domain import gpu_query
from apps.fleet.domain.gpu_facts import number_of, switch_of
from apps.fleet.domain.gpu_query import GpuReport, Run

DATA = Path(__file__).parent.parent / "data" / "gpus"
UUID = "GPU-67c7669e-5463-e457-4de6-494eb6cf7bf4"
XML = (DATA / "h200-query.xml").read_text()


def of(stdout: str, stderr: str = "", code: int | None = 0, fields: list[str] | None = None) -> GpuReport:
    return gpu_query.read(Run(stdout, stderr, code), fields)


def ids(report: GpuReport) -> list[str]:
    return [finding.id for finding in report.findings]


def test_errors_that_arrive_on_standard_output() -> None:
    runs = gpu_query.runs_of((DATA / "nvml-errors.json").read_text())
    reports = {run.name: gpu_query.read(run) for run in runs}
    assert {name: report.status for name, report in reports.items()} == {
        "a": "nvml_unreachable_in_container",
        "b": "no_gpus",
        "c": "driver_library_mismatch",
    }
    assert reports["a"].keep_last_known
    assert not reports["b"].keep_last_known
    assert reports["b"].good  # an empty list is an answer
    assert reports["c"].nvml_version == "550.54"
    assert all(report.gpus == [] for report in reports.values())


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "status"),
    [
        ("Failed to initialize NVML: Unknown Error\n", "", None, "nvml_unreachable_in_container"),
        ("", "Failed to initialize NVML: Driver/library version mismatch", 18, "driver_library_mismatch"),
        ("", "", 6, "no_gpus"),
        ("", "", 9, "driver_not_loaded"),
        ("", "", 255, "gpu_query_failed"),
        ("", "", 0, "gpu_query_failed"),
        ("No devices were found", "", 0, "no_gpus"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n",
            "",
            9,
            "driver_not_loaded",
        ),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
            "",
            12,
            "nvml_missing",
        ),
        ("Failed to initialize NVML: Insufficient Permissions", "", 4, "gpu_permission_denied"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "", 17, "nvml_failed"),
        ("", "bash: nvidia-smi: command not found", 127, "nvidia_smi_missing"),
        ("<html>proxy error</html>", "", 0, "gpu_query_failed"),
    ],
)
def test_ways_to_fail(stdout: str, stderr: str, code: int | None, status: str) -> None:
    report = of(stdout, stderr, code)
    assert report.status == status
    assert report.gpus == []
    assert all(finding.remedy for finding in report.findings)


def test_an_error_is_no_row_of_a_csv() -> None:
    report = of("index, name\nFailed to initialize NVML: Unknown Error\n", code=255)
    assert (report.gpus, report.status) == ([], "nvml_unreachable_in_container")
    report = of("Failed to initialize NVML: Unknown Error\n", code=255, fields=["name"])
    assert report.status == "ok" or not report.gpus


def test_one_dead_card_in_the_middle() -> None:
    text = (
        "index, uuid, name, memory.total [MiB]\n"
        "0, GPU-a, NVIDIA H200, 143771 MiB\n"
        "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error\n"
        "2, GPU-c, NVIDIA H200, 143771 MiB\n"
    )
    report = of(text, code=15)
    assert [(gpu.index, gpu.state) for gpu in report.gpus if gpu.state == "ok"] == [(0, "ok"), (2, "ok")]
    assert [gpu.pci_bus_id for gpu in report.gpus if gpu.state == "lost"] == ["00000000:41:00.0"]
    assert ids(report) == ["gpu_lost"]
    assert report.status == "ok"
    assert report.keep_last_known
    assert not report.good
    alone = of("Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot\n", code=15)
    assert alone.status == "gpu_lost"


def test_rows_with_a_bad_exit_code_are_kept_and_doubted() -> None:
    report = of("index, name\n0, NVIDIA A100\n", code=255)
    assert [gpu.product for gpu in report.gpus] == ["NVIDIA A100"]
    assert ids(report) == ["gpu_query_incomplete"]


@pytest.mark.parametrize("name", ["h200-query.xml", "h200-query.csv", "h200-list.txt", "h200-table.txt"])
def test_a_real_h200_in_every_format(name: str) -> None:
    report = of((DATA / name).read_text())
    assert (report.status, report.findings) == ("ok", [])
    (gpu,) = report.gpus
    assert (gpu.index, gpu.product, gpu.state) == (0, "NVIDIA H200", "ok")
    if name != "h200-table.txt":
        assert gpu.uuid == UUID
    if name != "h200-list.txt":
        assert gpu.memory_total_bytes == 143_771 * 2**20
        assert gpu.power_watts == pytest.approx(77, abs=0.6)
        assert (gpu.power_limit_watts, gpu.temperature_celsius, gpu.utilization) == (700, 32, 0)
        assert gpu.pci_bus_id == "00000000:00:06.0"
        assert gpu.unified_memory is False


def test_all_that_the_xml_tells() -> None:
    report = of(XML)
    (gpu,) = report.gpus
    assert (report.driver_version, report.cuda_version) == ("580.159.04", "13.0")
    assert gpu.architecture == "Hopper"
    assert (gpu.memory_temperature_celsius, gpu.sm_clock_hertz, gpu.sm_clock_max_hertz) == (36, 345e6, 1980e6)
    assert gpu.throttle_reasons == ["gpu_idle"]
    assert (gpu.ecc_enabled, gpu.ecc_uncorrected, gpu.ecc_corrected) == (True, 0, 0)
    assert (gpu.mig_enabled, gpu.mig_devices) == (False, [])
    assert gpu.persistence is True
    assert (gpu.pcie_generation, gpu.pcie_width) == (5, 16)


def test_lines_of_the_driver_around_the_xml_are_passed_over() -> None:
    report = of(
        f"Unable to determine the device handle for GPU0000:41:00.0: Unknown Error\n{XML}\nWARNING: x"
    )
    assert sorted(gpu.state for gpu in report.gpus) == ["lost", "ok"]


@pytest.mark.parametrize(
    "text", [XML[:5000], XML.replace("</uuid>", "", 1), XML.replace("<gpu ", "<!ENTITY x 'y'><gpu ", 1)]
)
def test_a_broken_xml_is_an_error_and_no_empty_list(text: str) -> None:
    report = of(text)
    assert report.status == "gpu_xml_unreadable"
    assert not report.good


def test_unified_memory_has_no_memory_of_its_own() -> None:
    text = "index, name, memory.total [MiB], memory.used [MiB]\n0, NVIDIA GB10, [N/A], [N/A]\n"
    (gpu,) = of(text).gpus
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes, gpu.unified_memory) == (None, None, True)
    xml = re.sub(r"<(total|used|free|reserved)>[^<]* MiB<", r"<\1>N/A<", XML)
    (gpu,) = of(xml).gpus
    assert (gpu.memory_total_bytes, gpu.unified_memory) == (None, True)


def test_mig_slices() -> None:
    part = """<mig_devices><mig_device><index>0</index><gpu_instance_id>9</gpu_instance_id>
        <compute_instance_id>0</compute_instance_id><device_attributes><shared>
        <multiprocessor_count>16</multiprocessor_count></shared></device_attributes>
        <fb_memory_usage><total>16384 MiB</total><used>14 MiB</used></fb_memory_usage></mig_device></mig_devices>"""
    xml = re.sub(r"<current_mig>Disabled", "<current_mig>Enabled", XML)
    xml = re.sub(r"<mig_devices>.*?</mig_devices>", part, xml, flags=re.DOTALL)
    xml = re.sub(r"<gpu_util>[^<]*<", "<gpu_util>N/A<", xml)
    (gpu,) = of(xml).gpus
    assert gpu.mig_enabled
    assert gpu.utilization is None
    (found,) = gpu.mig_devices
    assert (found.index, found.gpu_instance_id, found.multiprocessors) == (0, 9, 16)
    assert found.memory_total_bytes == 16384 * 2**20

    listed = (
        "GPU 0: NVIDIA H200 (UUID: GPU-12345678-aaaa-bbbb-cccc-0123456789ab)\n"
        "  MIG 1g.18gb     Device  0: (UUID: MIG-ca4a-1)\n  MIG 2g.35gb     Device  1: (UUID: MIG-ca4a-2)\n"
        "GPU 1: NVIDIA H200 (UUID: GPU-12345678-aaaa-bbbb-cccc-0123456789ac)\n"
    )
    first, second = of(listed).gpus
    assert [(part.profile, part.uuid) for part in first.mig_devices] == [
        ("1g.18gb", "MIG-ca4a-1"),
        ("2g.35gb", "MIG-ca4a-2"),
    ]
    assert second.mig_devices == []


@pytest.mark.parametrize(
    "word",
    ["N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "[Not Available]", ""],
)
def test_words_for_no_value(word: str) -> None:
    report = of(f"index, name, memory.total [MiB], power.draw [W]\n0, Tesla M40, {word}, {word}\n")
    (gpu,) = report.gpus
    assert (gpu.memory_total_bytes, gpu.power_watts) == (None, None)
    assert bool(ids(report)) == ("Error" in word or "reset" in word)


def test_units_with_and_without_nounits_and_without_headings() -> None:
    (gpu,) = of((DATA / "h200-query-nounits.csv").read_text()).gpus
    assert (gpu.memory_total_bytes, gpu.power_watts) == (143_771 * 2**20, pytest.approx(77.08))
    fields = ["index", "memory.total", "utilization.gpu", "clocks.sm"]
    (gpu,) = of("3, 143771, 50, 1980\n", fields=fields).gpus
    assert (gpu.index, gpu.memory_total_bytes, gpu.utilization) == (3, 143_771 * 2**20, 0.5)
    assert gpu.sm_clock_hertz == 1980e6
    assert of("3, 143771, 50, 1980\n").status == "gpu_query_failed"
    assert of("index, name\n0, NVIDIA T4, 5\n").status == "gpu_query_failed"


def test_old_and_new_names_in_the_xml() -> None:
    old = """<nvidia_smi_log><driver_version>470.82</driver_version><gpu id="00000000:0B:00.0">
        <product_name>Tesla V100</product_name><uuid>GPU-1</uuid>
        <clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
        <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle></clocks_throttle_reasons>
        <fb_memory_usage><total>32510 MiB</total><used>5 MiB</used></fb_memory_usage>
        <ecc_errors><volatile><double_bit><total>2</total></double_bit><single_bit><total>7</total></single_bit>
        </volatile></ecc_errors>
        <power_readings><power_draw>41.20 W</power_draw><enforced_power_limit>300.00 W</enforced_power_limit>
        </power_readings></gpu></nvidia_smi_log>"""
    (gpu,) = of(old).gpus
    assert (gpu.power_watts, gpu.power_limit_watts) == (41.2, 300)
    assert gpu.throttle_reasons == ["sw_power_cap"]
    assert (gpu.ecc_uncorrected, gpu.ecc_corrected) == (2, 7)


@given(st.text(max_size=300), st.sampled_from([None, 0, 6, 255]))
def test_nothing_makes_it_fail(text: str, code: int | None) -> None:
    report = gpu_query.read(Run(text, "", code))
    assert report.status
    json.dumps(report.as_dict())
    gpu_query.runs_of(text)


def test_values() -> None:
    assert number_of("1,234 MiB") == 1234 * 2**20
    assert number_of("35 %") == pytest.approx(0.35)
    assert number_of("12 parsecs") is None
    assert (switch_of("Enabled"), switch_of("Off"), switch_of("[N/A]")) == (True, False, None)


class Nvml:
    """NVML with one GPU that answers and what the test breaks."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, fails: dict[str, int] | None = None, count: int = 1) -> None:
        self.fails = fails or {}
        self.count = count

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answers = {
            "nvmlDeviceGetCount": self.count,
            "nvmlSystemGetDriverVersion": b"580.1",
            "nvmlSystemGetCudaDriverVersion": 12080,
            "nvmlDeviceGetName": "NVIDIA GB10",
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=100, used=40, free=60),
            "nvmlDeviceGetCudaComputeCapability": (12, 1),
            "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
            "nvmlDeviceGetMigMode": (0, 0),
        }

        def call(*args: Any) -> Any:
            if name in self.fails:
                raise self.NVMLError(self.fails[name])
            if name == "nvmlDeviceGetHandleByIndex" and self.fails.get(f"handle {args[0]}"):
                raise self.NVMLError(15)
            if name in answers:
                return answers[name]
            if name in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex"):
                return "handle"
            raise self.NVMLError(3)  # not supported

        return call


def test_nvml_with_what_a_gpu_does_not_support() -> None:
    report = gpu_query.from_nvml(Nvml())
    (gpu,) = report.gpus
    assert (report.status, report.driver_version, report.cuda_version) == ("ok", "580.1", "12.8")
    assert (gpu.product, gpu.compute_capability, gpu.memory_total_bytes) == ("NVIDIA GB10", "12.1", 100)
    assert gpu.power_watts is None
    assert gpu.throttle_reasons == ["sw_power_cap", "sw_thermal_slowdown"]
    unified = gpu_query.from_nvml(Nvml({"nvmlDeviceGetMemoryInfo": 3})).gpus[0]
    assert (unified.memory_total_bytes, unified.unified_memory) == (None, True)


def test_nvml_that_fails() -> None:
    assert gpu_query.from_nvml(Nvml({"nvmlInit": 18})).status == "driver_library_mismatch"
    assert gpu_query.from_nvml(Nvml({"nvmlInit": 999})).status == "nvml_unreachable_in_container"
    assert gpu_query.from_nvml(Nvml({"nvmlInit": 12})).status == "nvml_missing"
    assert gpu_query.from_nvml(Nvml(count=0)).status == "no_gpus"
    lost = gpu_query.from_nvml(Nvml({"handle 1": 1}, count=3))
    assert [gpu.state for gpu in lost.gpus] == ["ok", "lost", "ok"]
    assert ids(lost) == ["gpu_lost"]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call_command("read_gpus", str(DATA / "h200-query.csv"), "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["gpus"][0]["product"] == "NVIDIA H200"
    assert (found["status"], found["diagnosis"]) == ("ok", None)
    with pytest.raises(SystemExit) as ended:
        call_command("read_gpus", str(DATA / "nvml-errors.json"), "--json")
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["status"]["c"] == "driver_library_mismatch"
    empty = tmp_path / "empty.txt"
    empty.write_text("No devices were found\n")
    call_command("read_gpus", str(empty), "--exit-code", "6")
    assert "No GPUs." in capsys.readouterr().out
    with pytest.raises(CommandError) as wrong:
        call_command("read_gpus", str(tmp_path / "missing"))
    assert wrong.value.returncode == 2
