import asyncio

from eldr_runtime.router.readiness import Proof, Readiness


class Router:
    def __init__(self) -> None:
        self.now = 0.0
        self.proof = Proof(lambda: self.now)
        self.n_probes = 0
        self.problem: str | None = None

    async def probe(self) -> str | None:
        self.n_probes += 1
        await asyncio.sleep(0)
        if self.problem is None:
            self.proof.given()
        return self.problem

    def readiness(self) -> Readiness:
        return Readiness(self.proof, fresh_seconds=30.0, probe=self.probe)


def test_a_served_request_is_proof_for_thirty_seconds() -> None:
    router = Router()
    readiness = router.readiness()
    router.proof.given()
    router.now = 30.0
    assert asyncio.run(readiness.why_not()) is None
    assert router.n_probes == 0
    router.now = 30.1
    assert asyncio.run(readiness.why_not()) is None
    assert router.n_probes == 1


def test_a_failed_probe_says_why_and_is_made_again() -> None:
    router = Router()
    router.problem = "no decode worker is ready"
    readiness = router.readiness()
    assert asyncio.run(readiness.why_not()) == "no decode worker is ready"
    router.problem = None
    assert asyncio.run(readiness.why_not()) is None


def test_who_asks_at_the_same_time_shares_one_probe() -> None:
    router = Router()
    readiness = router.readiness()

    async def main() -> list[str | None]:
        return await asyncio.gather(*(readiness.why_not() for _ in range(5)))

    assert asyncio.run(main()) == [None] * 5
    assert router.n_probes == 1
