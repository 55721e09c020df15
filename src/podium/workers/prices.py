"""What a model costs where the configuration does not say: genai-prices knows most of them."""

from __future__ import annotations

from podium.workers import Price


def price_of(model: str, base_url: str, configured: Price | None = None) -> Price | None:
    """The configured price, else the published one of the provider at `base_url`, else None.

    A server of one's own is no provider, whatever the model: its price must be configured.
    """
    return configured or _published(model, base_url)


def _published(model: str, base_url: str) -> Price | None:
    import genai_prices

    def dollars(input_tokens: int = 0, output_tokens: int = 0, cached: int = 0) -> float:
        usage = genai_prices.Usage(
            input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached
        )
        found = genai_prices.calc_price(usage, model, provider_api_url=base_url)
        return float(found.total_price)

    try:
        # A thousand tokens stay in the lowest tier of providers that charge more for long prompts.
        return Price(
            input=dollars(input_tokens=1_000) * 1e3,
            output=dollars(output_tokens=1_000) * 1e3,
            cached=dollars(input_tokens=1_000, cached=1_000) * 1e3,
            source=f"genai-prices {genai_prices.__version__}",
        )
    except LookupError:
        return None
